#include "kernels/common/launch/step_launch.h"
#include "kernels/step/gx_gds/gx_gds.h"
#include "kernels/step/gx_gds/gx_gds_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "gx_gds";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(GxGdsParams, grad),       SDM_FIELD(GxGdsParams, bank),
    SDM_FIELD(GxGdsParams, gy),         SDM_FIELD(GxGdsParams, records),
    SDM_FIELD(GxGdsParams, dq),         SDM_FIELD(GxGdsParams, plane_stride),
    SDM_FIELD(GxGdsParams, step),       SDM_FIELD(GxGdsParams, num_parallel),
    SDM_FIELD(GxGdsParams, chunk_size), SDM_FIELD(GxGdsParams, num_reads),
    SDM_FIELD(GxGdsParams, hd),         SDM_FIELD(GxGdsParams, bank_type),
    SDM_FIELD(GxGdsParams, grad_type),  SDM_FIELD(GxGdsParams, reserved),
};

// Loaded before the wait (gx_gds.cuh).
constexpr const char* kEarly[] = {"records"};

void run_host(const void* params) { gx_gds_host(*static_cast<const GxGdsParams*>(params)); }

struct Sizes {
  int64_t chunks, hd;
  RowType bank_type, grad_type;
};

Sizes check(const plancap::Target& target, const GxGdsArgs& args) {
  expect_chunk_size(kName, args.chunk_size);
  expect_entries(kName, "num_reads", args.num_reads);
  const RowType bank_type = expect_bank_rows(kName, "bank", args.bank);
  const int64_t hd = args.bank.shape[1];
  const RowType grad_type = expect_grad_of_bank(kName, args.grad, args.bank);
  const int64_t entries = args.chunk_size * args.num_reads;
  expect_records(kName, "qrec", args.qrec, entries);
  const int64_t n = args.qrec.shape[0];
  expect_num_parallel(kName, n, args.num_parallel);
  expect_token_rows(kName, "gy", args.gy, n, args.chunk_size, hd);
  expect_planes(kName, "dq", args.dq, hd, n * entries);
  expect_device(kName, "grad", args.grad, target.device);
  expect_device(kName, "bank", args.bank, target.device);
  expect_device(kName, "gy", args.gy, target.device);
  expect_device(kName, "qrec", args.qrec, target.device);
  expect_device(kName, "dq", args.dq, target.device);
  return {n, hd, bank_type, grad_type};
}

GxGdsParams fill(const GxGdsArgs& args, const Sizes& sizes, int32_t step) {
  GxGdsParams params{};
  params.grad = args.grad.data;
  params.bank = args.bank.data;
  params.gy = static_cast<const float*>(args.gy.data);
  params.records = static_cast<const Record*>(args.qrec.data);
  params.dq = static_cast<float*>(args.dq.data);
  params.plane_stride = sizes.chunks * args.chunk_size * args.num_reads;
  params.step = step;
  params.num_parallel = static_cast<int32_t>(args.num_parallel);
  params.chunk_size = static_cast<int32_t>(args.chunk_size);
  params.num_reads = static_cast<int32_t>(args.num_reads);
  params.hd = static_cast<int32_t>(sizes.hd);
  params.bank_type = sizes.bank_type;
  params.grad_type = sizes.grad_type;
  return params;
}

}  // namespace

const KernelInfo& gx_gds_info() {
  static constexpr KernelInfo info = plancap::with_shared_percent(
      plancap::with_early(
          plancap::make_kernel_info<GxGdsParams>(kName, kFields, run_host, check_gx_gds_plan),
          kEarly),
      kStepSharedPercent);
  return info;
}

void gx_gds(plancap::Sink& sink, const GxGdsArgs& args) {
  // Check.
  const Sizes sizes = check(sink.target(), args);
  const StepRange range = step_range(kName, sizes.chunks, args.num_parallel, args.ti, args.steps);

  // Fill.
  const GxGdsParams params = fill(args, sizes, range.recorded_step);

  // Describe.
  const int64_t all_steps = sizes.chunks / args.num_parallel;
  plancap::Launch launch = step_launch(gx_gds_info(), &params, range);
  launch.operands = {whole("grad", args.grad, Access::kReadWrite),
                     whole("bank", args.bank, Access::kRead),
                     per_step("gy", args.gy, Access::kRead, all_steps),
                     record_operand("records", "qrec", args.qrec, all_steps),
                     planes_operand("dq", args.dq, sizes.hd, all_steps)};

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, gx_gds_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
