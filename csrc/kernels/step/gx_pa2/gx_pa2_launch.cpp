#include "kernels/common/launch/step_launch.h"
#include "kernels/step/gx_pa2/gx_pa2.h"
#include "kernels/step/gx_pa2/gx_pa2_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;
using plancap::Operand;

constexpr const char* kName = "gx_pa2";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(GxPa2Params, grad),
    SDM_FIELD(GxPa2Params, bank),
    SDM_FIELD(GxPa2Params, snap),
    SDM_NULLABLE_FIELD(GxPa2Params, scales),
    SDM_FIELD(GxPa2Params, d_u),
    SDM_FIELD(GxPa2Params, beta),
    SDM_FIELD(GxPa2Params, records),
    SDM_NULLABLE_FIELD(GxPa2Params, bpre),
    SDM_FIELD(GxPa2Params, out_eff),
    SDM_FIELD(GxPa2Params, out_g),
    SDM_FIELD(GxPa2Params, snap_step_rows),
    SDM_FIELD(GxPa2Params, plane_stride),
    SDM_FIELD(GxPa2Params, step),
    SDM_FIELD(GxPa2Params, num_parallel),
    SDM_FIELD(GxPa2Params, chunk_size),
    SDM_FIELD(GxPa2Params, num_writes),
    SDM_FIELD(GxPa2Params, hd),
    SDM_FIELD(GxPa2Params, bank_type),
    SDM_FIELD(GxPa2Params, snap_type),
    SDM_FIELD(GxPa2Params, grad_type),
};

// Loaded before the wait (gx_pa2.cuh).
constexpr const char* kEarly[] = {"records", "bpre", "snap", "scales"};

void run_host(const void* params) { gx_pa2_host(*static_cast<const GxPa2Params*>(params)); }

GxPa2Params fill(const GxPa2Args& args, const GxPa2Sizes& sizes, int32_t step) {
  GxPa2Params params{};
  params.grad = args.grad.data;
  params.bank = args.bank.data;
  params.snap = args.snap.data;
  params.scales = args.scales ? static_cast<const float*>(args.scales->data) : nullptr;
  params.d_u = static_cast<const float*>(args.d_u.data);
  params.beta = static_cast<const float*>(args.beta.data);
  params.records = static_cast<const Record*>(args.rec.data);
  params.bpre = args.bpre ? static_cast<const int32_t*>(args.bpre->data) : nullptr;
  params.out_eff = static_cast<float*>(args.out_eff.data);
  params.out_g = static_cast<float*>(args.out_g.data);
  params.snap_step_rows = args.snap_step_rows.value_or(0);
  params.plane_stride = sizes.chunks * sizes.entries;
  params.step = step;
  params.num_parallel = static_cast<int32_t>(args.num_parallel);
  params.chunk_size = static_cast<int32_t>(args.chunk_size);
  params.num_writes = static_cast<int32_t>(args.num_writes);
  params.hd = static_cast<int32_t>(sizes.hd);
  params.bank_type = sizes.bank_type;
  params.snap_type = sizes.snap_type;
  params.grad_type = sizes.grad_type;
  return params;
}

// One value or row per snapshot row: step ti's are snap_step_rows further on than step ti - 1's.
Operand snapshot_operand(const char* name, const TensorRef& tensor, const GxPa2Args& args,
                         const GxPa2Sizes& sizes, int64_t row_bytes) {
  Operand operand = whole(name, tensor, Access::kRead);
  operand.step_stride = static_cast<uint64_t>(sizes.snap_step_rows * row_bytes);
  operand.step_bytes = static_cast<uint64_t>(args.num_parallel * sizes.entries * row_bytes);
  return operand;
}

std::vector<Operand> operands(const GxPa2Args& args, const GxPa2Sizes& sizes) {
  const int64_t steps = sizes.chunks / args.num_parallel;
  std::vector<Operand> list = {
      whole("grad", args.grad, Access::kReadWrite),
      whole("bank", args.bank, Access::kWrite),
      snapshot_operand("snap", args.snap, args, sizes, sizes.snap_row_bytes),
      per_step("d_u", args.d_u, Access::kRead, steps),
      per_step("beta", args.beta, Access::kRead, steps),
      record_operand("records", "rec", args.rec, steps),
      planes_operand("out_eff", args.out_eff, sizes.hd, steps),
      planes_operand("out_g", args.out_g, sizes.hd, steps),
  };
  if (args.bpre) list.push_back(per_step("bpre", *args.bpre, Access::kRead, steps));
  if (args.scales) {
    list.push_back(snapshot_operand("scales", *args.scales, args, sizes, sizeof(float)));
  }
  return list;
}

}  // namespace

const KernelInfo& gx_pa2_info() {
  // kpay is the first of the four words of each record of rec.
  static constexpr KernelInfo info = plancap::with_unread(
      plancap::with_shared_percent(
          plancap::with_early(
              plancap::make_kernel_info<GxPa2Params>(kName, kFields, run_host, check_gx_pa2_plan),
              kEarly),
          kStepSharedPercent),
      {"kpay", Dtype::kInt32, "rec", sizeof(Record) / sizeof(int32_t)});
  return info;
}

void gx_pa2(plancap::Sink& sink, const GxPa2Args& args) {
  // Check.
  const GxPa2Sizes sizes = check_gx_pa2(sink.target(), args);
  const StepRange range = step_range(kName, sizes.chunks, args.num_parallel, args.ti, args.steps);

  // Fill.
  const GxPa2Params params = fill(args, sizes, range.recorded_step);

  // Describe.
  plancap::Launch launch = step_launch(gx_pa2_info(), &params, range);
  launch.operands = operands(args, sizes);

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, gx_pa2_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
