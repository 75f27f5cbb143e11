// Where a token's rows are, and its lanes' sums, for the host twin and the device kernel.
#pragma once
#include "kernels/chunk/token_gradients/token_gradients_params.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/records/chunk_tokens.h"

namespace sdm {

// Of a staged token: its row in [P, T, .], or -1 for padding.
SDM_HD int64_t unstaged_row(const TokenGradientsParams& params, int64_t staged) {
  const ChunkTokens tokens =
      staged_chunk_tokens(params, params.first_step, staged / params.chunk_size);
  const int64_t place = tokens.place(staged % params.chunk_size);
  if (!tokens.real(place)) return -1;
  return tokens.row(place);
}

// Lane l adds up columns 4l .. 4l+3 of every 128 in order; then the balanced tree over the lanes.
inline constexpr int32_t kLaneStride = kLanes * kLaneColumns;

SDM_HD float add_product(float d_u, float innovation, float sum) {
  return fused(d_u, innovation, sum);
}

}  // namespace sdm
