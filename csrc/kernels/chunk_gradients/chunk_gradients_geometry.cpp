#include "kernels/chunk_gradients/chunk_gradients_geometry.h"

#include "kernels/chunk_gradients/chunk_gradients_block.h"
#include "kernels/common/chunk_shape.h"

namespace sdm {

StepGeometry chunk_gradients_geometry(const ChunkGradientsParams& params, GradientPass pass) {
  const bool of_tokens = pass == GradientPass::kTokens;
  const int32_t count = of_tokens ? params.chunk_size : shape_of(params).events();
  StepGeometry geometry;
  geometry.entry = pass == GradientPass::kRuns    ? "chunk_gradients_runs"
                   : pass == GradientPass::kGates ? "chunk_gradients_gates"
                                                  : "chunk_gradients_tokens";
  geometry.config.grid.x =
      static_cast<uint32_t>(params.num_chunks) * static_cast<uint32_t>(gradient_blocks(count));
  geometry.config.block.x = kGradientThreads;
  return geometry;
}

}  // namespace sdm
