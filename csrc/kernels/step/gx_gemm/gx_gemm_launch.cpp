#include "kernels/common/launch/step_launch.h"
#include "kernels/step/gx_gemm/gx_gemm.h"
#include "kernels/step/gx_gemm/gx_gemm_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::Backend;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "gx_gemm";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(GxGemmParams, d_u),          SDM_FIELD(GxGemmParams, x),
    SDM_FIELD(GxGemmParams, d_dv),         SDM_FIELD(GxGemmParams, step),
    SDM_FIELD(GxGemmParams, num_parallel), SDM_FIELD(GxGemmParams, chunk_size),
    SDM_FIELD(GxGemmParams, hd),
};

// Loaded before the wait (gx_gemm.cuh).
constexpr const char* kEarly[] = {"x", "d_u"};

void run_host(const void* params) { gx_gemm_host(*static_cast<const GxGemmParams*>(params)); }

void check(const plancap::Target& target, const GxGemmArgs& args) {
  expect_tensor(kName, "d_u", args.d_u, Dtype::kFloat32, {"N", "C", "hd"});
  const int64_t n = args.d_u.shape[0], c = args.d_u.shape[1], hd = args.d_u.shape[2];
  expect_chunk_size(kName, c);
  expect_head_dim(kName, hd);
  expect_tensor(kName, "x", args.x, Dtype::kFloat32, {n, c, c});
  expect_token_rows(kName, "d_dv", args.d_dv, n, c, hd);
  expect_device(kName, "d_u", args.d_u, target.device);
  expect_device(kName, "x", args.x, target.device);
  expect_device(kName, "d_dv", args.d_dv, target.device);
}

}  // namespace

const KernelInfo& gx_gemm_info() {
  static constexpr KernelInfo info = plancap::with_shared_percent(
      plancap::with_early(
          plancap::make_kernel_info<GxGemmParams>(kName, kFields, run_host, check_gx_gemm_plan),
          kEarly),
      kStepSharedPercent);
  return info;
}

void gx_gemm(plancap::Sink& sink, const GxGemmArgs& args) {
  // Check.
  check(sink.target(), args);
  const int64_t n = args.d_u.shape[0];
  const StepRange range = step_range(kName, n, args.num_parallel, args.ti, args.steps);

  // Fill.
  GxGemmParams params{};
  params.d_u = static_cast<float*>(args.d_u.data);
  params.x = static_cast<const float*>(args.x.data);
  params.d_dv = static_cast<const float*>(args.d_dv.data);
  params.step = range.recorded_step;
  params.num_parallel = static_cast<int32_t>(args.num_parallel);
  params.chunk_size = static_cast<int32_t>(args.d_u.shape[1]);
  params.hd = static_cast<int32_t>(args.d_u.shape[2]);

  // Describe.
  const int64_t all_steps = n / args.num_parallel;
  plancap::Launch launch = step_launch(gx_gemm_info(), &params, range);
  launch.operands = {per_step("d_u", args.d_u, Access::kReadWrite, all_steps),
                     per_step("x", args.x, Access::kRead, all_steps),
                     per_step("d_dv", args.d_dv, Access::kRead, all_steps)};

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, gx_gemm_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
