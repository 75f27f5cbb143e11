// The heads' readings of a token side by side: normalized, gated, for the output projection.
#pragma once
#include <cstdint>

#include "kernels/common/rows/row_types.h"

namespace sdm {

struct MergeReadingsParams {
  const void* readings;     // [B, T, H, hd]
  const void* norm_weight;  // [hd], or null: the readings are not normalized
  const void* norm_bias;    // [hd], or null with it
  const void* gate;         // [B, T, H*hd] before its sigmoid, or null
  void* merged;             // [B, T, H*hd], contiguous
  int64_t readings_batch_stride, readings_token_stride, readings_head_stride;  // in elements
  int64_t gate_batch_stride, gate_token_stride;
  int32_t num_batches;  // B
  int32_t num_tokens;   // T
  int32_t num_heads;    // H
  int32_t hd;
  RowType readings_type, norm_type, gate_type, merged_type;
  float eps;  // of the norm
};

}  // namespace sdm
