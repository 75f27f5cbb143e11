#include "kernels/chunk_gradients/chunk_gradients_geometry.h"

#include "kernels/chunk_gradients/chunk_gradients_block.h"
#include "kernels/common/chunk_launch.h"

namespace sdm {

StepGeometry chunk_gradients_geometry(const ChunkGradientsParams& params) {
  StepGeometry geometry;
  geometry.entry = "chunk_gradients";
  geometry.config = chunk_config(params.num_chunks, shape_of(params).events(), kGradientThreads, 0);
  return geometry;
}

}  // namespace sdm
