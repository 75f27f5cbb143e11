// A team's place in the launch, and its sums: the lane tree (docs/step_chain.md, section 4).
#pragma once
#include "kernels/common/rows/team_layout.h"
#include "kernels/common/rows/thread_rows.cuh"

namespace sdm {

inline constexpr uint32_t kFullWarp = 0xffffffffu;

template <int kCols>
struct Team {
  static_assert(kCols == 4 || kCols == 8);
  static constexpr int kSize = kLanes * kLaneColumns / kCols;  // threads

  int32_t lane;    // in the warp
  int32_t member;  // in the team
  int32_t index;   // the team's, in the warp
  int32_t slice;
  int32_t group_in_round;          // 0, or 1 for the second of two teams that work alone
  bool two_groups;                 // the warp's teams work alone, a group each
  int32_t slice_begin, slice_end;  // columns
  Columns columns;                 // this thread's

  // `slice_group`: which of team_layout()'s slice groups this warp works on.
  __device__ __forceinline__ Team(int32_t hd, int32_t slice_group) {
    const TeamLayout layout = team_layout(hd, kCols);
    // Unsigned: a remainder is then one instruction.
    lane = static_cast<int32_t>(threadIdx.x % uint32_t{kLanes});
    member = static_cast<int32_t>(threadIdx.x % uint32_t{kSize});
    index = static_cast<int32_t>(threadIdx.x % uint32_t{kLanes} / uint32_t{kSize});
    two_groups = layout.groups_per_round == 2;
    group_in_round = two_groups ? index : 0;
    slice = slice_group * layout.slices_per_warp + (two_groups ? 0 : index);
    const int32_t width = slice_width(hd);
    slice_begin = slice * width;
    slice_end = min(slice_begin + width, hd);
    columns.column = slice_begin + member * kCols;
    columns.count = max(0, min(kCols, slice_end - columns.column));
  }
};

// This thread's part of a row dot: one contract lane's partial, or two lanes' added.
template <int kCols>
__device__ __forceinline__ float partial_dot(const float (&a)[kCols], const float (&b)[kCols]) {
  const float first = lane_dot(a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]);
  if constexpr (kCols == 4) {
    return first;
  } else {
    return plus(first, lane_dot(a[4], a[5], a[6], a[7], b[4], b[5], b[6], b[7]));
  }
}

// The balanced tree over a team's partials, in every thread of the team. Partners at distance 1
// first: additions commute, so this is ((p0 + p1) + (p2 + p3)) + ...
template <int kCols>
__device__ __forceinline__ float team_sum(float partial) {
#pragma unroll
  for (int distance = 1; distance < Team<kCols>::kSize; distance *= 2) {
    partial = plus(partial, __shfl_xor_sync(kFullWarp, partial, distance));
  }
  return partial;
}

// kCount trees at once (a power of two). At each of the first levels a thread keeps half of its
// values and gives the other half away, so that all trees together cost kCount - 1 + a few
// shuffles. The pairs at each level are team_sum's, so the bits are too.
// Returns the sum number sum_index<kCount>(member).
template <int kCols, int kCount>
__device__ __forceinline__ float team_sums(float (&partials)[kCount], int32_t member) {
  static_assert(kCount <= Team<kCols>::kSize);
  int held = kCount;
#pragma unroll
  for (int distance = 1; distance < Team<kCols>::kSize; distance *= 2) {
    if (distance < kCount) {
      held /= 2;
      const bool upper = (member & distance) != 0;
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        if (i < held) {
          const float kept = upper ? partials[i + held] : partials[i];
          const float given = upper ? partials[i] : partials[i + held];
          partials[i] = plus(kept, __shfl_xor_sync(kFullWarp, given, distance));
        }
      }
    } else {
      partials[0] = plus(partials[0], __shfl_xor_sync(kFullWarp, partials[0], distance));
    }
  }
  return partials[0];
}

// The low log2(kCount) bits of `member`, reversed.
template <int kCount>
__device__ __forceinline__ int32_t sum_index(int32_t member) {
  int32_t index = 0;
#pragma unroll
  for (int bit = 1; bit < kCount; bit *= 2) index = 2 * index + ((member & bit) != 0);
  return index;
}

}  // namespace sdm
