#include "kernels/chunk/chunk_prepare/chunk_prepare_geometry.h"

#include "kernels/chunk/chunk_prepare/chunk_prepare_block.h"
#include "kernels/common/launch/chunk_launch.h"

namespace sdm {

StepGeometry chunk_prepare_geometry(const ChunkPrepareParams& params) {
  const int32_t events = shape_of(params).events();
  const int32_t parts = (events + kPreparePart - 1) / kPreparePart;
  StepGeometry geometry;
  geometry.entry = "chunk_prepare";
  geometry.config =
      chunk_config(params.num_chunks, events / parts, kPrepareThreads, kPrepareShared);
  geometry.config.grid.y = static_cast<uint32_t>(parts);
  return geometry;
}

}  // namespace sdm
