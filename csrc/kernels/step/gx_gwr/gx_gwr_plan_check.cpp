#include "kernels/common/launch/plan_checks.h"
#include "kernels/step/gx_gwr/gx_gwr.h"

namespace sdm {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

void check_gx_gwr_plan(const ParamView& view) {
  const auto& params = view.get<GxGwrParams>();
  check_step_fields(view, params);
  view.range("num_writes", params.num_writes, 1, 256);
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int64_t w = params.num_writes, hd = params.hd, step = params.step;
  check_row_operand(view, "grad", "grad_type", params.grad_type, params.hd, Access::kRead);
  view.share<float>("delta", Access::kRead, volume({tokens, hd}), step);
  view.share<float>("pd", Access::kRead, volume({tokens, w}), step);
  view.share<int32_t>("slots", Access::kRead, volume({tokens, w}), step);
  view.share<float>("d_dv", Access::kWrite, volume({tokens, hd}), step);
  check_plane_operand(view, "dpd", params.plane_stride, params.hd, tokens * w, step);
}

}  // namespace sdm
