#include "kernels/chunk/chunk_inverse/chunk_inverse_geometry.h"

#include "kernels/chunk/chunk_inverse/chunk_inverse_tile.h"

namespace sdm {

StepGeometry chunk_inverse_geometry(const ChunkInverseParams& params) {
  const int64_t blocks = int64_t{params.num_chunks} * inverse_tiles(params.chunk_size);
  StepGeometry geometry;
  geometry.entry = "chunk_inverse";
  geometry.config.grid.x = static_cast<uint32_t>(blocks);
  geometry.config.block.x = kInverseThreads;
  geometry.config.shared_bytes =
      static_cast<uint32_t>(inverse_shared_floats(params.chunk_size) * 4);
  return geometry;
}

}  // namespace sdm
