// The order of scores and where a row's operands are, for the host twin and the device kernel.
#pragma once
#include "kernels/common/math/bf16.h"
#include "kernels/layer/slot_select/slot_select_params.h"

namespace sdm {

// Bits that order as the floats do, -0 below +0.
SDM_HD uint32_t ordered_bits(uint32_t bits) {
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

SDM_HD uint32_t unordered_bits(uint32_t ordered) {
  return ordered ^ (~static_cast<uint32_t>(static_cast<int32_t>(ordered) >> 31) | 0x80000000u);
}

// A score or a sum as the selection ranks it: NaN as -inf. Above 0 and below 2^32 - 1.
SDM_HD uint32_t rank_bits(float value) {
  return ordered_bits(float_to_bits(larger(value, -infinite())));
}

inline constexpr uint32_t kLowestRank = 0x007fffffu;  // of -inf, and so of NaN

SDM_HD float score_at(const void* scores, RowType type, int64_t index) {
  return type == RowType::kFloat32 ? static_cast<const float*>(scores)[index]
                                   : bf16_to_float(static_cast<const uint16_t*>(scores)[index]);
}

// Where row (b, t, h) lies.
struct SelectRow {
  int64_t scores;  // index of its first score
  int64_t out;     // (b*H + h)*T + t
  int32_t first_slot;
};

SDM_HD SelectRow select_row(const SlotSelectParams& params, const SlotSelectSide& side, int32_t row,
                            int32_t columns, int32_t slots) {
  const HeadRow at = head_row(params, row);
  return {at.batch * side.batch_stride + at.token * side.token_stride + int64_t{at.head} * columns,
          int64_t{at.sequence} * params.num_tokens + at.token, at.sequence * slots};
}

// A table may be anything: no position leads out of a ranking.
SDM_HD int32_t table_position(const SlotSelectSide& side, int32_t factors, int32_t candidate,
                              int32_t factor, int32_t kept) {
  const int32_t position = side.positions[candidate * factors + factor];
  return position < kept ? position : kept - 1;
}

}  // namespace sdm
