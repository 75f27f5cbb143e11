#include "kernels/common/launch/plan_checks.h"
#include "kernels/step/gx_gemm/gx_gemm.h"

namespace sdm {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

void check_gx_gemm_plan(const ParamView& view) {
  const auto& params = view.get<GxGemmParams>();
  check_step_fields(view, params);
  const int64_t p = params.num_parallel, c = params.chunk_size, hd = params.hd;
  view.share<float>("d_u", Access::kReadWrite, volume({p, c, hd}), params.step);
  view.share<float>("x", Access::kRead, volume({p, c, c}), params.step);
  view.share<float>("d_dv", Access::kRead, volume({p, c, hd}), params.step);
}

}  // namespace sdm
