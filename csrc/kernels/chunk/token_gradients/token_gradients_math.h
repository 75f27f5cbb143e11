// Where a token's rows are, and its lanes' sums, for the host twin and the device kernel.
#pragma once
#include "kernels/chunk/token_gradients/token_gradients_params.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/records/chunk_tokens.h"

namespace sdm {

// A staged token's rows in the gradients; padding has none.
struct UnstagedRows {
  int64_t dv, dbeta;
  bool real;
};

SDM_HD UnstagedRows unstaged_rows(const TokenGradientsParams& params, int64_t staged) {
  const int64_t chunk = staged / params.chunk_size;
  const ChunkTokens tokens = staged_chunk_tokens(params, params.first_step, chunk);
  const ChunkTokens beside = staged_head_tokens(params, params.heads, params.first_step, chunk);
  const int64_t place = tokens.place(staged - chunk * params.chunk_size);
  return {beside.row(place), tokens.row(place), tokens.real(place)};
}

// Lane l adds up columns 4l .. 4l+3 of every 128 in order; then the balanced tree over the lanes.
inline constexpr int32_t kLaneStride = kLanes * kLaneColumns;

SDM_HD float add_product(float d_u, float innovation, float sum) {
  return fused(d_u, innovation, sum);
}

}  // namespace sdm
