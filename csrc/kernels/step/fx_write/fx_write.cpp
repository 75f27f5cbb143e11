#include "kernels/step/fx_write/fx_write.h"

#include "kernels/common/launch/step_launch.h"
#include "kernels/step/fx_write/fx_write_ring.h"

namespace sdm {
namespace {

constexpr const char* kName = "fx_write";

constexpr StepRow kRows[] = {
    SDM_OPERAND(FxWriteParams, bank, "bank", kBankRows, kReadWrite),
    SDM_OPERAND(FxWriteParams, delta, "delta", kTokenRows, kRead),
    SDM_OPERAND(FxWriteParams, updates, "updates", kWriteRecords, kRead).measures().loaded_early(),
    SDM_OPTIONAL_OPERAND(FxWriteParams, snap, "snap", kSnapshotRows, kWrite),
    SDM_OPTIONAL_OPERAND(FxWriteParams, bpre, "bpre", kSnapshotCounts, kRead).loaded_early(),
    SDM_NUMBER(FxWriteParams, step),
    SDM_SIZE(FxWriteParams, num_parallel),
    SDM_SIZE(FxWriteParams, chunk_size),
    SDM_SIZE(FxWriteParams, num_writes),
    SDM_NUMBER(FxWriteParams, hd),
    SDM_NUMBER(FxWriteParams, bank_type),
    SDM_OPTIONAL_SIZE(FxWriteParams, snap_chunk_rows),
    SDM_NUMBER(FxWriteParams, reserved),
};

void complete(const StepLaunch& launch) {
  const bool snap = launch.args.find("snap"), bpre = launch.args.find("bpre");
  SDM_EXPECT(snap == bpre, kValue, kName, "snap, bpre", "both or neither",
             snap ? "snap alone" : "bpre alone");
  const auto given = launch.args.number("snap_chunk_rows");
  SDM_EXPECT(snap || !given, kValue, kName, "snap_chunk_rows", "none (no snapshot is kept)",
             *given);
  auto& params = *static_cast<FxWriteParams*>(launch.params);
  params.snap_chunk_rows = snap ? static_cast<int32_t>(launch.sizes.snap_chunk_rows) : 0;
}

void check_rest(const plancap::ParamView& view) {
  const auto& params = view.get<FxWriteParams>();
  const int64_t entries = int64_t{params.chunk_size} * params.num_writes;
  view.range("snap_chunk_rows", params.snap_chunk_rows, view.has("snap") ? 1 : 0,
             view.has("snap") ? entries : 0);
  view.expect(view.has("snap") == view.has("bpre"), "bpre",
              view.has("snap") ? "an operand (a snapshot is kept)" : "none (no snapshot is kept)",
              "the other");
}

StepGeometry geometry(const plancap::Target& target, const FxWriteParams& params) {
  const RowType bank = params.bank_type;
  const StoredRows rows[] = {{"bank", params.bank, bank},
                             {"snap", params.snap, bank},
                             {"delta", params.delta, RowType::kFloat32}};
  const int32_t columns = piece_columns(params.hd, widest_piece({bank}), rows);

  StepGeometry chosen;
  chosen.entry = entry_name(kName, {bank}, columns);
  use_records(chosen,
              record_grid({params.hd, columns, params.num_parallel,
                           params.chunk_size * params.num_writes, kWriteShape.warps()},
                          target.sm_count),
              kWriteShape,
              columns == 0 ? write_ring_bytes(kWriteShape, kAnyRow, kLaneColumns)
                           : write_ring_bytes(kWriteShape, bank, columns));
  chosen.alignments = piece_alignments(rows, columns);
  return chosen;
}

}  // namespace

constexpr StepKernel kFxWrite{
    kName, kRows, fx_write_info, step_geometry<FxWriteParams, geometry>, complete, check_rest};

const plancap::KernelInfo& fx_write_info() {
  static constexpr plancap::KernelInfo info =
      step_kernel_info<FxWriteParams, kRows, kFxWrite, fx_write_host>();
  return info;
}

}  // namespace sdm
