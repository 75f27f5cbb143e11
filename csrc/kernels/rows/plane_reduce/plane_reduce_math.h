// One entry of the reduce, for the host twin and the device kernel.
#pragma once
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/records/chunk_tokens.h"
#include "kernels/rows/plane_reduce/plane_reduce_params.h"

namespace sdm {

SDM_HD bool plane_entry_is_padding(const PlaneReduceParams& params, int64_t entry) {
  const int64_t token = entry / params.width;  // n*C + t
  const ChunkTokens tokens = staged_chunk_tokens(params, 0, token / params.chunk_size);
  return !tokens.real(tokens.place(token % params.chunk_size));
}

// The planes' values in slice order, then the factor.
SDM_HD float reduced(const PlaneReduceParams& params, int64_t entry) {
  float sum = params.planes[entry];
  for (int32_t plane = 1; plane < params.num_planes; ++plane) {
    sum = plus(sum, params.planes[plane * params.count + entry]);
  }
  if (params.factor == nullptr) return sum;
  const float factor = params.factor[entry / params.group];
  return times(params.negate != 0 ? -factor : factor, sum);
}

}  // namespace sdm
