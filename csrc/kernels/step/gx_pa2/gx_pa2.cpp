#include "kernels/step/gx_pa2/gx_pa2.h"

#include "kernels/step/gx_pa2/gx_pa2_ring.h"

namespace sdm {
namespace {

constexpr const char* kName = "gx_pa2";

constexpr StepRow kRows[] = {
    SDM_OPERAND(GxPa2Params, grad, "grad", kGradRows, kReadWrite),
    SDM_OPERAND(GxPa2Params, bank, "bank", kBankRows, kWrite),
    SDM_OPERAND(GxPa2Params, snap, "snap", kOddForm, kRead).loaded_early(),
    SDM_OPTIONAL_OPERAND(GxPa2Params, scales, "scales", kOddForm, kRead).loaded_early(),
    SDM_OPERAND(GxPa2Params, d_u, "d_u", kTokenRows, kRead),
    SDM_OPERAND(GxPa2Params, beta, "beta", kTokenValues, kRead),
    SDM_OPERAND(GxPa2Params, records, "rec", kWriteRecords, kRead).measures().loaded_early(),
    SDM_OPTIONAL_OPERAND(GxPa2Params, bpre, "bpre", kSnapshotCounts, kRead).loaded_early(),
    SDM_OPERAND(GxPa2Params, out_eff, "out_eff", kWritePlanes, kWrite),
    SDM_OPERAND(GxPa2Params, out_g, "out_g", kWritePlanes, kWrite),
    SDM_OPTIONAL_SIZE(GxPa2Params, snap_step_rows),
    SDM_NUMBER(GxPa2Params, plane_stride),
    SDM_NUMBER(GxPa2Params, step),
    SDM_SIZE(GxPa2Params, num_parallel),
    SDM_SIZE(GxPa2Params, chunk_size),
    SDM_SIZE(GxPa2Params, num_writes),
    SDM_NUMBER(GxPa2Params, hd),
    SDM_NUMBER(GxPa2Params, bank_type),
    SDM_FORMAT(GxPa2Params, snap_type, "snap_format"),
    SDM_NUMBER(GxPa2Params, grad_type),
    SDM_OPTIONAL_SIZE(GxPa2Params, snap_chunk_rows),
    SDM_NUMBER(GxPa2Params, reserved),
};

StepGeometry geometry(const plancap::Target& target, const GxPa2Params& params) {
  const RowType bank = params.bank_type, snap = params.snap_type, grad = params.grad_type;
  const StoredRows rows[] = {{"grad", params.grad, grad},
                             {"bank", params.bank, bank},
                             {"snap", params.snap, snap},
                             {"d_u", params.d_u, RowType::kFloat32}};
  const int32_t columns = piece_columns(params.hd, widest_piece({bank, grad}), rows);

  StepGeometry chosen;
  chosen.entry = entry_name(kName, {bank, snap, grad}, columns);
  use_records(chosen,
              record_grid({params.hd, columns, params.num_parallel,
                           params.chunk_size * params.num_writes, kPa2Shape.warps()},
                          target.sm_count),
              kPa2Shape,
              columns == 0 ? pa2_ring_bytes(kPa2Shape, kAnyRow, kAnyRow, kLaneColumns)
                           : pa2_ring_bytes(kPa2Shape, snap, grad, columns));
  chosen.alignments = piece_alignments(rows, columns);
  return chosen;
}

}  // namespace

constexpr StepKernel kGxPa2{
    kName,          kRows, gx_pa2_info, step_geometry<GxPa2Params, geometry>, complete_snapshots,
    check_snapshots};

const plancap::KernelInfo& gx_pa2_info() {
  static constexpr plancap::KernelInfo info =
      step_kernel_info<GxPa2Params, kRows, kGxPa2, gx_pa2_host>();
  return info;
}

}  // namespace sdm
