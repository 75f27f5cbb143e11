#include "kernels/common/launch/step_launch.h"
#include "kernels/step/fx_read/fx_read.h"
#include "kernels/step/fx_read/fx_read_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "fx_read";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(FxReadParams, bank),        SDM_FIELD(FxReadParams, v),
    SDM_FIELD(FxReadParams, row_weights), SDM_FIELD(FxReadParams, residual),
    SDM_FIELD(FxReadParams, reading),     SDM_FIELD(FxReadParams, num_tokens),
    SDM_FIELD(FxReadParams, step),        SDM_FIELD(FxReadParams, num_parallel),
    SDM_FIELD(FxReadParams, chunk_size),  SDM_FIELD(FxReadParams, num_writes),
    SDM_FIELD(FxReadParams, num_reads),   SDM_FIELD(FxReadParams, hd),
    SDM_FIELD(FxReadParams, bank_type),   SDM_FIELD(FxReadParams, reserved),
};

// Loaded before the wait (fx_read.cuh).
constexpr const char* kEarly[] = {"row_weights", "v"};

void run_host(const void* params) { fx_read_host(*static_cast<const FxReadParams*>(params)); }

struct Sizes {
  int64_t chunks, reads, hd;
  RowType bank_type;
};

Sizes check(const plancap::Target& target, const FxReadArgs& args) {
  expect_chunk_size(kName, args.chunk_size);
  expect_entries(kName, "num_writes", args.num_writes);
  const RowType bank_type = expect_bank_rows(kName, "bank", args.bank);
  const int64_t hd = args.bank.shape[1];
  expect_row_weights(kName, "row_weights", args.row_weights);
  const int64_t rows = args.row_weights.shape[0];
  const int64_t reads = args.row_weights.shape[1] - args.num_writes;
  SDM_EXPECT(reads >= 1 && reads <= 256, kValue, kName, "row_weights",
             cat("num_writes + 1..256 = ", args.num_writes + 1, "..", args.num_writes + 256,
                 " entries a token"),
             args.row_weights.describe());
  SDM_EXPECT(rows % args.chunk_size == 0, kValue, kName, "row_weights",
             cat("N * ", args.chunk_size, " rows"), args.row_weights.describe());
  const int64_t n = rows / args.chunk_size;
  expect_num_parallel(kName, n, args.num_parallel);
  expect_num_tokens(kName, args.num_tokens, n / args.num_parallel, args.chunk_size);
  expect_token_rows(kName, "v", args.v, n, args.chunk_size, hd, args.bank.dtype);
  expect_token_rows(kName, "residual", args.residual, n, args.chunk_size, hd);
  expect_token_rows(kName, "reading", args.reading, n, args.chunk_size, hd);
  expect_device(kName, "bank", args.bank, target.device);
  expect_device(kName, "v", args.v, target.device);
  expect_device(kName, "row_weights", args.row_weights, target.device);
  expect_device(kName, "residual", args.residual, target.device);
  expect_device(kName, "reading", args.reading, target.device);
  return {n, reads, hd, bank_type};
}

FxReadParams fill(const FxReadArgs& args, const Sizes& sizes, int32_t step) {
  FxReadParams params{};
  params.bank = args.bank.data;
  params.v = args.v.data;
  params.row_weights = static_cast<const RowWeight*>(args.row_weights.data);
  params.residual = static_cast<float*>(args.residual.data);
  params.reading = static_cast<float*>(args.reading.data);
  params.num_tokens = args.num_tokens;
  params.step = step;
  params.num_parallel = static_cast<int32_t>(args.num_parallel);
  params.chunk_size = static_cast<int32_t>(args.chunk_size);
  params.num_writes = static_cast<int32_t>(args.num_writes);
  params.num_reads = static_cast<int32_t>(sizes.reads);
  params.hd = static_cast<int32_t>(sizes.hd);
  params.bank_type = sizes.bank_type;
  return params;
}

}  // namespace

const KernelInfo& fx_read_info() {
  static constexpr KernelInfo info = plancap::with_shared_percent(
      plancap::with_early(
          plancap::make_kernel_info<FxReadParams>(kName, kFields, run_host, check_fx_read_plan),
          kEarly),
      kStepSharedPercent);
  return info;
}

void fx_read(plancap::Sink& sink, const FxReadArgs& args) {
  // Check.
  const Sizes sizes = check(sink.target(), args);
  const StepRange range = step_range(kName, sizes.chunks, args.num_parallel, args.ti, args.steps);

  // Fill.
  const FxReadParams params = fill(args, sizes, range.recorded_step);

  // Describe.
  const int64_t all_steps = sizes.chunks / args.num_parallel;
  plancap::Launch launch = step_launch(fx_read_info(), &params, range);
  launch.operands = {whole("bank", args.bank, Access::kRead),
                     per_step("v", args.v, Access::kRead, all_steps),
                     per_step("row_weights", args.row_weights, Access::kRead, all_steps),
                     per_step("residual", args.residual, Access::kWrite, all_steps),
                     per_step("reading", args.reading, Access::kWrite, all_steps)};
  launch.operands[2].align = alignof(RowWeight);

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, fx_read_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
