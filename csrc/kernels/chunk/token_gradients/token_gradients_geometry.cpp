#include "kernels/chunk/token_gradients/token_gradients_geometry.h"

#include "kernels/chunk/token_gradients/token_gradients_block.h"

namespace sdm {

StepGeometry token_gradients_geometry(const TokenGradientsParams& params) {
  constexpr int32_t kTokens = kTokenThreads / kLanes;
  const int64_t tokens = int64_t{params.num_chunks} * params.chunk_size;
  StepGeometry geometry;
  geometry.entry = "token_gradients";
  geometry.config.grid.x = static_cast<uint32_t>((tokens + kTokens - 1) / kTokens);
  geometry.config.block.x = kTokenThreads;
  return geometry;
}

}  // namespace sdm
