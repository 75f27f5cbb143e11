#include "kernels/common/launch/step_launch.h"
#include "kernels/step/blas_gemm/blas_gemm.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;
using plancap::Patch;
using plancap::PatchKind;

constexpr const char* kName = "blas_gemm";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(BlasGemmParams, d_u),        SDM_FIELD(BlasGemmParams, x),
    SDM_FIELD(BlasGemmParams, d_dv),       SDM_FIELD(BlasGemmParams, num_parallel),
    SDM_FIELD(BlasGemmParams, chunk_size), SDM_FIELD(BlasGemmParams, hd),
    SDM_FIELD(BlasGemmParams, reserved),
};

plancap::LibraryFailure run_library(const void* params, void* handle) {
  return blas_gemm_call(*static_cast<const BlasGemmParams*>(params), handle);
}

void check(const plancap::Target& target, const BlasGemmArgs& args) {
  SDM_EXPECT(target.backend == plancap::Backend::kCuda, kValue, kName, "d_u",
             "a tensor on a CUDA device (the host runs gx_gemm)", device_name(target.device));
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

// The library takes addresses, not a step: each pointer moves on by its operand's share of a step.
Patch pointer_patch(const plancap::Operand& operand, uint32_t steps) {
  const auto stride = static_cast<int64_t>(operand.step_stride);
  return {operand.field, PatchKind::kPointer, 0, stride, 0, stride * (int64_t{steps} - 1)};
}

}  // namespace

const KernelInfo& blas_gemm_info() {
  static const KernelInfo info = [] {
    KernelInfo made =
        plancap::make_kernel_info<BlasGemmParams>(kName, kFields, nullptr, check_blas_gemm_plan);
    made.library = run_library;
    made.resize = [](plancap::PlanResize&) {};  // its numbers are those of one step
    return made;
  }();
  return info;
}

void blas_gemm(plancap::Sink& sink, const BlasGemmArgs& args) {
  // Check.
  check(sink.target(), args);
  const int64_t n = args.d_u.shape[0];
  SDM_EXPECT(args.steps >= 1, kValue, kName, "steps", "at least 1", args.steps);
  const StepRange range = step_range(kName, n, args.num_parallel, 0, args.steps);

  // Fill.
  BlasGemmParams params{};
  params.d_u = static_cast<float*>(args.d_u.data);
  params.x = static_cast<const float*>(args.x.data);
  params.d_dv = static_cast<const float*>(args.d_dv.data);
  params.num_parallel = static_cast<int32_t>(args.num_parallel);
  params.chunk_size = static_cast<int32_t>(args.d_u.shape[1]);
  params.hd = static_cast<int32_t>(args.d_u.shape[2]);

  // Launch.
  const int64_t all_steps = n / args.num_parallel;
  plancap::Launch launch;
  launch.kernel = &blas_gemm_info();
  launch.entry = "cublasSgemmStridedBatched";
  launch.library = true;
  launch.params = &params;
  launch.steps = range.steps;
  launch.operands = {per_step("d_u", args.d_u, Access::kReadWrite, all_steps),
                     per_step("x", args.x, Access::kRead, all_steps),
                     per_step("d_dv", args.d_dv, Access::kRead, all_steps)};
  for (const plancap::Operand& operand : launch.operands) {
    launch.patches.push_back(pointer_patch(operand, range.steps));
  }
  sink.launch(launch);
}

}  // namespace sdm
