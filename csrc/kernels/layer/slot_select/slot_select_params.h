// The best k slots of product-key scores with their weights, for keys and queries in one launch.
#pragma once
#include "kernels/common/math/slot_weights.h"
#include "kernels/common/rows/head_rows.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

// Keys or queries. Rows are (b, t, h), h fastest; K is the sum of the factors' widths.
struct SlotSelectSide {
  const void* scores;        // row (b, t, h): K values from b*batch_stride + t*token_stride + h*K
  const uint8_t* positions;  // [candidates, F]: the candidate's position in each factor's ranking
  int32_t* slots;            // [B*H, T, count]
  float* weights;            // [B*H, T, count]
  float* norms;              // [B*H, T], kL2 alone
  int64_t batch_stride, token_stride;  // in values
  int32_t count;                       // k
  int32_t candidates;                  // M
  SlotActivation activation;
  float scale;
};

struct SlotSelectParams {
  SlotSelectSide key, query;  // a side without scores is not there
  int32_t num_batches, num_tokens, num_heads;
  int32_t num_factors;
  int32_t widths[kMaxFactors];  // 0 past num_factors
  RowType row_type;             // of both sides' scores: float32 or bfloat16
  Divider by_heads, by_tokens;
  int32_t key_wide_loads, query_wide_loads;  // 1: a row's factors are whole pieces of 16 bytes
};

}  // namespace sdm
