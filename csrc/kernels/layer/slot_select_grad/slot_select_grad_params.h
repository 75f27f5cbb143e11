// From the gradients of selected slots' weights to those of the product-key scores, for keys and
// queries in one launch.
#pragma once
#include "kernels/common/math/slot_weights.h"
#include "kernels/common/rows/head_rows.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

// Keys or queries, as slot_select left them. Rows are (b, t, h), h fastest; K is the sum of the
// factors' widths.
struct SlotGradSide {
  const float* d_weights;  // [B*H, T, count]
  const int32_t* slots;    // [B*H, T, count]: ascending, (b*H + h)*S + slot
  const float* weights;    // [B*H, T, count]; null for kNone
  const float* norms;      // [B*H, T], kL2 alone
  void* d_scores;          // [B, T, H*K]
  int32_t count;           // k
  SlotActivation activation;
  float scale;
  int32_t wide_stores;  // 1: d_scores' rows are whole pieces of 16 bytes
};

struct SlotSelectGradParams {
  SlotGradSide key, query;  // a side without d_scores is not there
  int32_t num_batches, num_tokens, num_heads;
  int32_t num_factors;
  int32_t widths[kMaxFactors];    // 0 past num_factors
  Divider by_parts[kMaxFactors];  // by the product of the later factors' widths
  RowType row_type;               // of both sides' d_scores: float32 or bfloat16
  Divider by_heads, by_tokens;
  int32_t num_columns;  // K
};

}  // namespace sdm
