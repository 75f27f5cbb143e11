// beta = sigmoid(b) and g = -exp(A_log) * softplus(a + dt_bias), by token and head.
#pragma once
#include <cstdint>

#include "kernels/common/rows/row_types.h"

namespace sdm {

struct TokenGatesParams {
  const void* a;                           // [B, T, H], a projection of the layer's input
  const void* b;                           // [B, T, H], another
  const void* a_log;                       // [H]
  const void* dt_bias;                     // [H]
  float* beta;                             // [B*H, T]
  float* g;                                // [B*H, T]
  int64_t a_batch_stride, a_token_stride;  // in elements; of a token, heads are side by side
  int64_t b_batch_stride, b_token_stride;
  int32_t num_batches;  // B
  int32_t num_tokens;   // T
  int32_t num_heads;    // H
  RowType a_type, b_type, a_log_type, dt_bias_type;
};

}  // namespace sdm
