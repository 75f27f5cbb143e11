// From d_beta and d_g: the gradients of a, b, A_log and dt_bias (token_gates), recomputed from the
// gates' inputs.
#pragma once
#include <cstdint>

#include "kernels/common/rows/row_types.h"

namespace sdm {

struct TokenGatesGradParams {
  const float* d_beta;                     // [B*H, T]
  const float* d_g;                        // [B*H, T]
  const void* a;                           // [B, T, H]
  const void* b;                           // [B, T, H]
  const void* a_log;                       // [H]
  const void* dt_bias;                     // [H]
  void* d_a;                               // [B, T, H], of a's type
  void* d_b;                               // [B, T, H], of b's type
  void* d_a_log;                           // [H], of a_log's type
  void* d_dt_bias;                         // [H], of dt_bias's type
  int64_t a_batch_stride, a_token_stride;  // in elements; of a token, heads are side by side
  int64_t b_batch_stride, b_token_stride;
  int32_t num_batches;  // B
  int32_t num_tokens;   // T
  int32_t num_heads;    // H
  RowType a_type, b_type, a_log_type, dt_bias_type;
};

}  // namespace sdm
