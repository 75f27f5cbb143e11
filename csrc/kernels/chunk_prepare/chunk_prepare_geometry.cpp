#include "kernels/chunk_prepare/chunk_prepare_geometry.h"

#include "kernels/chunk_prepare/chunk_prepare_block.h"
#include "kernels/common/chunk_groups.h"
#include "kernels/common/chunk_launch.h"

namespace sdm {

StepGeometry chunk_prepare_geometry(const ChunkPrepareParams& params) {
  StepGeometry geometry;
  geometry.entry = "chunk_prepare";
  geometry.config =
      chunk_config(params.num_chunks, shape_of(params).events(), kPrepareThreads, kGroupScanBytes);
  return geometry;
}

}  // namespace sdm
