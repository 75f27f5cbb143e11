#include "kernels/common/launch/step_launch.h"
#include "kernels/step/fx_write/fx_write.h"
#include "kernels/step/fx_write/fx_write_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "fx_write";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(FxWriteParams, bank),          SDM_FIELD(FxWriteParams, delta),
    SDM_FIELD(FxWriteParams, updates),       SDM_NULLABLE_FIELD(FxWriteParams, snap),
    SDM_NULLABLE_FIELD(FxWriteParams, bpre), SDM_FIELD(FxWriteParams, step),
    SDM_FIELD(FxWriteParams, num_parallel),  SDM_FIELD(FxWriteParams, chunk_size),
    SDM_FIELD(FxWriteParams, num_writes),    SDM_FIELD(FxWriteParams, hd),
    SDM_FIELD(FxWriteParams, bank_type),
};

// Loaded before the wait (fx_write.cuh).
constexpr const char* kEarly[] = {"updates", "bpre"};

void run_host(const void* params) { fx_write_host(*static_cast<const FxWriteParams*>(params)); }

struct Sizes {
  int64_t chunks, hd;
  RowType bank_type;
};

void check_snapshot(const FxWriteArgs& args, int64_t chunks, int64_t entries, int64_t hd) {
  SDM_EXPECT(args.snap.has_value() == args.bpre.has_value(), kValue, kName, "snap, bpre",
             "both or neither", args.snap ? "snap alone" : "bpre alone");
  if (!args.snap) return;
  expect_tensor(kName, "snap", *args.snap, args.bank.dtype, {chunks * entries, hd});
  expect_tensor(kName, "bpre", *args.bpre, Dtype::kInt32, {chunks, (entries + 31) / 32 + 1});
}

Sizes check(const plancap::Target& target, const FxWriteArgs& args) {
  expect_chunk_size(kName, args.chunk_size);
  expect_entries(kName, "num_writes", args.num_writes);
  const int64_t entries = args.chunk_size * args.num_writes;
  const RowType bank_type = expect_bank_rows(kName, "bank", args.bank);
  const int64_t hd = args.bank.shape[1];
  expect_records(kName, "updates", args.updates, entries);
  const int64_t n = args.updates.shape[0];
  expect_num_parallel(kName, n, args.num_parallel);
  expect_token_rows(kName, "delta", args.delta, n, args.chunk_size, hd);
  check_snapshot(args, n, entries, hd);
  expect_device(kName, "bank", args.bank, target.device);
  expect_device(kName, "delta", args.delta, target.device);
  expect_device(kName, "updates", args.updates, target.device);
  if (args.snap) expect_device(kName, "snap", *args.snap, target.device);
  if (args.bpre) expect_device(kName, "bpre", *args.bpre, target.device);
  return {n, hd, bank_type};
}

FxWriteParams fill(const FxWriteArgs& args, const Sizes& sizes, int32_t step) {
  FxWriteParams params{};
  params.bank = args.bank.data;
  params.delta = static_cast<const float*>(args.delta.data);
  params.updates = static_cast<const Record*>(args.updates.data);
  params.snap = args.snap ? args.snap->data : nullptr;
  params.bpre = args.bpre ? static_cast<const int32_t*>(args.bpre->data) : nullptr;
  params.step = step;
  params.num_parallel = static_cast<int32_t>(args.num_parallel);
  params.chunk_size = static_cast<int32_t>(args.chunk_size);
  params.num_writes = static_cast<int32_t>(args.num_writes);
  params.hd = static_cast<int32_t>(sizes.hd);
  params.bank_type = sizes.bank_type;
  return params;
}

std::vector<plancap::Operand> operands(const FxWriteArgs& args, const Sizes& sizes) {
  const int64_t steps = sizes.chunks / args.num_parallel;
  std::vector<plancap::Operand> list = {
      whole("bank", args.bank, Access::kReadWrite),
      per_step("delta", args.delta, Access::kRead, steps),
      record_operand("updates", "updates", args.updates, steps),
  };
  if (args.snap) {
    list.push_back(per_step("snap", *args.snap, Access::kWrite, steps));
    list.push_back(per_step("bpre", *args.bpre, Access::kRead, steps));
  }
  return list;
}

}  // namespace

const KernelInfo& fx_write_info() {
  static constexpr KernelInfo info = plancap::with_shared_percent(
      plancap::with_early(
          plancap::make_kernel_info<FxWriteParams>(kName, kFields, run_host, check_fx_write_plan),
          kEarly),
      kStepSharedPercent);
  return info;
}

void fx_write(plancap::Sink& sink, const FxWriteArgs& args) {
  // Check.
  const Sizes sizes = check(sink.target(), args);
  const StepRange range = step_range(kName, sizes.chunks, args.num_parallel, args.ti, args.steps);

  // Fill.
  const FxWriteParams params = fill(args, sizes, range.recorded_step);

  // Describe.
  plancap::Launch launch = step_launch(fx_write_info(), &params, range);
  launch.operands = operands(args, sizes);

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, fx_write_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
