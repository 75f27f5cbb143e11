#include "kernels/step_lists/step_lists_geometry.h"

#include "kernels/common/chunk_groups.h"
#include "kernels/common/chunk_launch.h"
#include "kernels/step_lists/step_lists_block.h"

namespace sdm {

StepGeometry step_lists_geometry(const StepListsParams& params) {
  StepGeometry geometry;
  geometry.entry = "step_lists";
  geometry.config =
      chunk_config(params.num_chunks, shape_of(params).events(), kListThreads, kGroupScanBytes);
  return geometry;
}

}  // namespace sdm
