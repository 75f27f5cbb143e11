#include <limits>

#include "kernels/common/math/ordered_math.h"
#include "kernels/rows/plane_reduce/plane_reduce.h"
#include "plancap/format/param_view.h"

namespace sdm {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

void check_plane_reduce_plan(const ParamView& view) {
  const auto& params = view.get<PlaneReduceParams>();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  view.range("width", params.width, 1, 256);
  view.range("num_parallel", params.num_parallel, 1, kMost);
  view.range("chunk_size", params.chunk_size, 1, 256);
  view.range("num_planes", params.num_planes, 1, num_slices(1 << 20));
  view.range("group", params.group, 1, 256);
  view.range("negate", params.negate, 0, 1);
  view.range("count", params.count, 0, std::numeric_limits<int64_t>::max());
  view.expect(params.count % params.width == 0 && params.count % params.group == 0, "count",
              "a multiple of width and group", std::to_string(params.count));
  view.reach<float>("planes", Access::kRead, volume({params.num_planes, params.count}));
  view.reach<float>("out", Access::kWrite, volume({params.count}));
  if (view.has("factor")) {
    view.reach<float>("factor", Access::kRead, volume({params.count / params.group}));
  }
}

}  // namespace sdm
