// y_i[m, n] = bf16(sum over k of weight_i[n, k] * x[m, k] + bias_i[n]), f32 sums, for up to 8
// weights that share x: the group's members.
#pragma once
#include "kernels/common/math/host_device.h"
#include "kernels/linear/bf16_linear/bf16_linear_params.h"

namespace sdm {

inline constexpr int32_t kMaxBf16LinearMembers = 8;

// What a member that is not there has for its first row tile: no tile is that far.
inline constexpr int32_t kNoRowTile = 0x7fffffff;

// Arrays are by member. A member that is not there has null pointers and zeros.
struct Bf16LinearGroupParams {
  TensorMapBytes weight_maps[kMaxBf16LinearMembers];  // as Bf16LinearParams::weight_map
  TensorMapBytes x_map;
  const uint16_t* x;                              // [M, K], row stride x_stride
  const uint16_t* weight[kMaxBf16LinearMembers];  // [N_i, K], row stride weight_stride
  const uint16_t* bias[kMaxBf16LinearMembers];    // [N_i], or null
  uint16_t* y[kMaxBf16LinearMembers];             // [M, N_i]
  int64_t x_stride;                               // in elements, as the others
  int64_t weight_stride[kMaxBf16LinearMembers];
  int32_t num_rows[kMaxBf16LinearMembers];    // N_i
  int32_t first_tile[kMaxBf16LinearMembers];  // row tiles of the members before this one
  int32_t num_members;
  int32_t num_tokens;   // M
  int32_t depth;        // K
  int32_t depth_tiles;  // these and the rest as in Bf16LinearParams
  int32_t splits;
  int32_t split_inverse;
  int32_t paired_stores;  // bit i: Bf16LinearParams::paired_store of member i
  int32_t tactic;
  int32_t trigger_lead;
  int32_t prefetch_tiles;
};

// The member whose row tile this is; of tiles past the last one, which fill a cluster, the last
// member, whose rows end before them.
SDM_HD constexpr int32_t bf16_linear_group_member(
    const int32_t (&first_tile)[kMaxBf16LinearMembers], uint32_t row_tile) {
  int32_t member = 0;
  for (int32_t next = 1; next < kMaxBf16LinearMembers; ++next) {
    member += row_tile >= static_cast<uint32_t>(first_tile[next]);
  }
  return member;
}

}  // namespace sdm
