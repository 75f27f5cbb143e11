// The slices' planes added in slice order, times a factor.
#pragma once
#include <cstdint>

namespace sdm {

struct PlaneReduceParams {
  const float* planes;  // [num_planes, count]
  const float* factor;  // [count / group], or null for 1
  float* out;           // [count]
  int64_t count;        // N * C * width
  int64_t num_tokens;   // T: entries of tokens from here on are padding and become 0
  int32_t num_planes;
  int32_t group;   // entries that share one factor
  int32_t negate;  // 1: the factor's sign is flipped
  int32_t width;   // entries per token (W or R)
  int32_t num_parallel;
  int32_t chunk_size;
};

}  // namespace sdm
