#include "kernels/common/launch/step_launch.h"
#include "kernels/step/gx_gwr/gx_gwr.h"
#include "kernels/step/gx_gwr/gx_gwr_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "gx_gwr";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(GxGwrParams, grad),       SDM_FIELD(GxGwrParams, delta),
    SDM_FIELD(GxGwrParams, pd),         SDM_FIELD(GxGwrParams, slots),
    SDM_FIELD(GxGwrParams, d_dv),       SDM_FIELD(GxGwrParams, dpd),
    SDM_FIELD(GxGwrParams, num_tokens), SDM_FIELD(GxGwrParams, plane_stride),
    SDM_FIELD(GxGwrParams, step),       SDM_FIELD(GxGwrParams, num_parallel),
    SDM_FIELD(GxGwrParams, chunk_size), SDM_FIELD(GxGwrParams, num_writes),
    SDM_FIELD(GxGwrParams, hd),         SDM_FIELD(GxGwrParams, grad_type),
};

// Loaded before the wait (gx_gwr.cuh).
constexpr const char* kEarly[] = {"slots", "pd", "delta"};

void run_host(const void* params) { gx_gwr_host(*static_cast<const GxGwrParams*>(params)); }

struct Sizes {
  int64_t chunks, writes, hd;
  RowType grad_type;
};

Sizes check(const plancap::Target& target, const GxGwrArgs& args) {
  expect_chunk_size(kName, args.chunk_size);
  const RowType grad_type = expect_bank_rows(kName, "grad", args.grad);
  expect_tensor(kName, "slots", args.slots, Dtype::kInt32, {"N*C", "W"});
  const int64_t rows = args.slots.shape[0], w = args.slots.shape[1], hd = args.grad.shape[1];
  SDM_EXPECT(rows % args.chunk_size == 0, kValue, kName, "slots",
             cat("N * ", args.chunk_size, " rows"), args.slots.describe());
  const int64_t n = rows / args.chunk_size;
  expect_entries(kName, "num_writes", w);
  expect_num_parallel(kName, n, args.num_parallel);
  expect_num_tokens(kName, args.num_tokens, n / args.num_parallel, args.chunk_size);
  expect_token_rows(kName, "delta", args.delta, n, args.chunk_size, hd);
  expect_tensor(kName, "pd", args.pd, Dtype::kFloat32, {rows, w});
  expect_token_rows(kName, "d_dv", args.d_dv, n, args.chunk_size, hd);
  expect_planes(kName, "dpd", args.dpd, hd, rows * w);
  expect_device(kName, "grad", args.grad, target.device);
  expect_device(kName, "delta", args.delta, target.device);
  expect_device(kName, "pd", args.pd, target.device);
  expect_device(kName, "slots", args.slots, target.device);
  expect_device(kName, "d_dv", args.d_dv, target.device);
  expect_device(kName, "dpd", args.dpd, target.device);
  return {n, w, hd, grad_type};
}

GxGwrParams fill(const GxGwrArgs& args, const Sizes& sizes, int32_t step) {
  GxGwrParams params{};
  params.grad = args.grad.data;
  params.delta = static_cast<const float*>(args.delta.data);
  params.pd = static_cast<const float*>(args.pd.data);
  params.slots = static_cast<const int32_t*>(args.slots.data);
  params.d_dv = static_cast<float*>(args.d_dv.data);
  params.dpd = static_cast<float*>(args.dpd.data);
  params.num_tokens = args.num_tokens;
  params.plane_stride = sizes.chunks * args.chunk_size * sizes.writes;
  params.step = step;
  params.num_parallel = static_cast<int32_t>(args.num_parallel);
  params.chunk_size = static_cast<int32_t>(args.chunk_size);
  params.num_writes = static_cast<int32_t>(sizes.writes);
  params.hd = static_cast<int32_t>(sizes.hd);
  params.grad_type = sizes.grad_type;
  return params;
}

}  // namespace

const KernelInfo& gx_gwr_info() {
  static constexpr KernelInfo info = plancap::with_shared_percent(
      plancap::with_early(
          plancap::make_kernel_info<GxGwrParams>(kName, kFields, run_host, check_gx_gwr_plan),
          kEarly),
      kStepSharedPercent);
  return info;
}

void gx_gwr(plancap::Sink& sink, const GxGwrArgs& args) {
  // Check.
  const Sizes sizes = check(sink.target(), args);
  const StepRange range = step_range(kName, sizes.chunks, args.num_parallel, args.ti, args.steps);

  // Fill.
  const GxGwrParams params = fill(args, sizes, range.recorded_step);

  // Describe.
  const int64_t all_steps = sizes.chunks / args.num_parallel;
  plancap::Launch launch = step_launch(gx_gwr_info(), &params, range);
  launch.operands = {whole("grad", args.grad, Access::kRead),
                     per_step("delta", args.delta, Access::kRead, all_steps),
                     per_step("pd", args.pd, Access::kRead, all_steps),
                     per_step("slots", args.slots, Access::kRead, all_steps),
                     per_step("d_dv", args.d_dv, Access::kWrite, all_steps),
                     planes_operand("dpd", args.dpd, sizes.hd, all_steps)};

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, gx_gwr_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
