#include "kernels/rows/plane_reduce/plane_reduce_geometry.h"

#include "kernels/rows/plane_reduce/plane_reduce_block.h"

namespace sdm {

StepGeometry plane_reduce_geometry(const PlaneReduceParams& params) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  const bool wide = params.count % 4 == 0 && aligned(params.planes) && aligned(params.out);
  const int64_t threads = wide ? params.count / 4 : params.count;

  StepGeometry geometry;
  geometry.entry = wide ? "plane_reduce_x4" : "plane_reduce_x1";
  geometry.config.grid.x = static_cast<uint32_t>((threads + kReduceThreads - 1) / kReduceThreads);
  geometry.config.block.x = kReduceThreads;
  if (wide) geometry.alignments = {{"planes", 16}, {"out", 16}};
  return geometry;
}

}  // namespace sdm
