// The snapshots of gx_pa2: two layouts, rows of any format, scales for quantized ones.
#include <limits>

#include "kernels/common/host/host_rows.h"
#include "kernels/common/launch/row_checks.h"
#include "kernels/common/launch/step_launch.h"
#include "kernels/common/rows/row_bits.h"
#include "kernels/step/gx_pa2/gx_pa2.h"

namespace sdm {
namespace {

using plancap::Operand;
using plancap::ParamView;
using plancap::volume;

constexpr const char* kName = "gx_pa2";

void check_scales(const TensorRef* scales, RowType snap_type, int64_t snap_rows) {
  if (!is_quantized(snap_type)) {
    SDM_EXPECT(!scales, kValue, kName, "scales", "none (snapshots are not quantized)",
               scales->describe());
    return;
  }
  SDM_EXPECT(scales, kValue, kName, "scales",
             cat("float32 with ", snap_rows, " elements (snapshots are quantized)"), "none");
  expect_numel(kName, "scales", *scales, Dtype::kFloat32, snap_rows);
}

// Which snapshot row belongs to a group: the dense layout with bpre, or one row per entry. Returns
// the rows from one step's snapshots to the next one's.
int64_t check_layout(const StepArgs& args, const StepSizes& sizes, int64_t snap_rows) {
  const TensorRef& snap = args.at("snap");
  const bool dense = args.find("bpre");
  const auto step_stride = args.number("snap_step_rows");
  SDM_EXPECT(dense != step_stride.has_value(), kValue, kName, "bpre, snap_step_rows",
             "exactly one of the two", dense ? "both" : "neither");
  if (dense) {
    const int64_t rows = sizes.chunks * sizes.snap_chunk_rows;
    SDM_EXPECT(snap_rows == rows, kValue, kName, "snap", cat(rows, " rows (the dense layout)"),
               snap.describe());
    return sizes.num_parallel * sizes.snap_chunk_rows;
  }
  const auto chunk_rows = args.number("snap_chunk_rows");
  SDM_EXPECT(!chunk_rows, kValue, kName, "snap_chunk_rows", "none (snapshots are not dense)",
             *chunk_rows);
  const int64_t step_rows = sizes.num_parallel * sizes.chunk_entries(Entries::kWrites);
  SDM_EXPECT(*step_stride >= step_rows, kValue, kName, "snap_step_rows",
             cat("at least ", step_rows, " (num_parallel * chunk_size * num_writes)"),
             *step_stride);
  const int64_t before_last = sizes.steps() - 1;
  SDM_EXPECT(before_last == 0 || *step_stride <= (snap_rows - step_rows) / before_last, kValue,
             kName, "snap", cat(before_last, " * snap_step_rows + ", step_rows, " rows"),
             snap.describe());
  SDM_EXPECT(snap_rows >= step_rows, kValue, kName, "snap", cat("at least ", step_rows, " rows"),
             snap.describe());
  return *step_stride;
}

// Of `row_bytes` bytes for each snapshot row: `rows` in a step, and step ti's are so many rows
// further on than the step's before.
void step_through(Operand& operand, int64_t rows, int64_t step_rows, int64_t row_bytes) {
  operand.step_stride = static_cast<uint64_t>(step_rows * row_bytes);
  operand.step_bytes = static_cast<uint64_t>(rows * row_bytes);
}

}  // namespace

void complete_snapshots(const StepLaunch& launch) {
  // Check.
  const StepArgs& args = launch.args;
  const TensorRef& snap = args.at("snap");
  const TensorRef* scales = args.find("scales");
  std::optional<RowType> given;
  if (const std::string* name = args.word("snap_format")) {
    given = expect_row_format(kName, "snap_format", *name);
  }
  const RowType type =
      expect_snapshot_rows(kName, "snap", snap, launch.sizes.bank_type, launch.sizes.hd, given);
  expect_contiguous(kName, "snap", snap);
  const int64_t last = snap.shape[snap.ndim - 1], rows = snap.numel() / last;
  const int64_t step_rows = check_layout(args, launch.sizes, rows);
  const bool dense = args.find("bpre");
  check_scales(scales, type, rows);

  // Fill.
  auto& params = *static_cast<GxPa2Params*>(launch.params);
  params.snap_step_rows = args.number("snap_step_rows").value_or(0);
  params.snap_chunk_rows = dense ? static_cast<int32_t>(launch.sizes.snap_chunk_rows) : 0;
  params.snap_type = type;

  // Describe.
  const int64_t of_chunk =
      dense ? launch.sizes.snap_chunk_rows : launch.sizes.chunk_entries(Entries::kWrites);
  const int64_t of_step = launch.sizes.num_parallel * of_chunk;
  step_through(launch.operand("snap"), of_step, step_rows, last * dtype_bytes(snap.dtype));
  if (scales) step_through(launch.operand("scales"), of_step, step_rows, sizeof(float));
}

// Of a step, the chunks' rows of the dense layout or one for each entry; with each row a scale if
// they are quantized.
void check_snapshots(const ParamView& view) {
  const auto& params = view.get<GxPa2Params>();
  check_snapshot_type(view, "snap_type", params.snap_type, params.bank_type, params.hd);
  const int64_t entries = int64_t{params.chunk_size} * params.num_writes;
  const bool dense = view.has("bpre");
  view.range("snap_chunk_rows", params.snap_chunk_rows, dense ? 1 : 0, dense ? entries : 0);
  const int64_t rows = params.num_parallel * (dense ? params.snap_chunk_rows : entries);
  view.range("snap_step_rows", params.snap_step_rows, dense ? 0 : rows,
             dense ? 0 : std::numeric_limits<int64_t>::max());
  const int64_t step_rows = dense ? rows : params.snap_step_rows;
  const int64_t row = row_bytes(params.snap_type, params.hd);
  const bool quantized = is_quantized(params.snap_type);
  const auto element = quantized ? 1 : static_cast<uint32_t>(row_bytes(params.snap_type, 1));
  view.share_bytes("snap", plancap::Access::kRead, element, volume({rows, row}),
                   volume({step_rows, row}), params.step);
  view.expect(quantized == view.has("scales"), "scales",
              quantized ? "an operand (snapshots are quantized)" : "none", "the other");
  if (quantized) {
    view.share_bytes("scales", plancap::Access::kRead, alignof(float),
                     volume({rows, sizeof(float)}), volume({step_rows, sizeof(float)}),
                     params.step);
  }
}

}  // namespace sdm
