#include "kernels/step/gx_gds/gx_gds.h"

#include "kernels/step/gx_gds/gx_gds_ring.h"

namespace sdm {
namespace {

constexpr const char* kName = "gx_gds";

constexpr StepRow kRows[] = {
    SDM_OPERAND(GxGdsParams, grad, "grad", kGradRows, kReadWrite),
    SDM_OPERAND(GxGdsParams, bank, "bank", kBankRows, kRead),
    SDM_OPERAND(GxGdsParams, gy, "gy", kTokenRows, kRead),
    SDM_OPERAND(GxGdsParams, records, "qrec", kReadRecords, kRead).measures().loaded_early(),
    SDM_OPERAND(GxGdsParams, dq, "dq", kReadPlanes, kWrite),
    SDM_NUMBER(GxGdsParams, plane_stride),
    SDM_NUMBER(GxGdsParams, step),
    SDM_SIZE(GxGdsParams, num_parallel),
    SDM_SIZE(GxGdsParams, chunk_size),
    SDM_SIZE(GxGdsParams, num_reads),
    SDM_NUMBER(GxGdsParams, hd),
    SDM_NUMBER(GxGdsParams, bank_type),
    SDM_NUMBER(GxGdsParams, grad_type),
    SDM_NUMBER(GxGdsParams, reserved),
};

StepGeometry geometry(const plancap::Target& target, const GxGdsParams& params) {
  const RowType bank = params.bank_type, grad = params.grad_type;
  const StoredRows rows[] = {{"grad", params.grad, grad},
                             {"bank", params.bank, bank},
                             {"gy", params.gy, RowType::kFloat32}};
  const int32_t columns = piece_columns(params.hd, widest_piece({bank, grad}), rows);

  StepGeometry chosen;
  chosen.entry = entry_name(kName, {bank, grad}, columns);
  use_records(chosen,
              record_grid({params.hd, columns, params.num_parallel,
                           params.chunk_size * params.num_reads, kGdsShape.warps()},
                          target.sm_count),
              kGdsShape,
              columns == 0 ? gds_ring_bytes(kGdsShape, kAnyRow, kAnyRow, kLaneColumns)
                           : gds_ring_bytes(kGdsShape, bank, grad, columns));
  chosen.alignments = piece_alignments(rows, columns);
  return chosen;
}

}  // namespace

constexpr StepKernel kGxGds{kName, kRows, gx_gds_info, step_geometry<GxGdsParams, geometry>};

const plancap::KernelInfo& gx_gds_info() {
  static constexpr plancap::KernelInfo info =
      step_kernel_info<GxGdsParams, kRows, kGxGds, gx_gds_host>();
  return info;
}

}  // namespace sdm
