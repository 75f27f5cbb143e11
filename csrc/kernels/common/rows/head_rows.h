// Rows of a projection [B, T, H*K] with a row a head, and where they stand by sequence.
#pragma once
#include "kernels/common/math/divider.h"

namespace sdm {

// Product keys: the most factors, and columns of one, that the kernels take.
inline constexpr int32_t kMaxFactors = 8;
inline constexpr int32_t kMaxFactorWidth = 1024;

// Row (b, t, h), h fastest.
struct HeadRow {
  int32_t batch, token, head;
  int32_t sequence;  // b*H + h
};

// Params: num_tokens, num_heads and the divisions by both.
template <typename Params>
SDM_HD HeadRow head_row(const Params& params, int32_t row) {
  const int32_t token_of_all = divided_by(row, params.by_heads);  // b*T + t
  const int32_t head = row - token_of_all * params.num_heads;
  const int32_t batch = divided_by(token_of_all, params.by_tokens);
  return {batch, token_of_all - batch * params.num_tokens, head, batch * params.num_heads + head};
}

template <typename Params>
SDM_HD int64_t head_rows(const Params& params) {
  return int64_t{params.num_batches} * params.num_tokens * params.num_heads;
}

// The factors' columns, and the slots that they make.
template <typename Params>
SDM_HD int32_t row_columns(const Params& params) {
  int32_t columns = 0;
  for (int32_t f = 0; f < params.num_factors; ++f) columns += params.widths[f];
  return columns;
}

template <typename Params>
SDM_HD int32_t row_slots(const Params& params) {
  int32_t slots = 1;
  for (int32_t f = 0; f < params.num_factors; ++f) slots *= params.widths[f];
  return slots;
}

}  // namespace sdm
