#include "kernels/step/gx_gds/gx_gds_geometry.h"

#include "kernels/step/gx_gds/gx_gds_ring.h"

namespace sdm {
StepGeometry gx_gds_geometry(const plancap::Target& target, const GxGdsParams& params) {
  const RowType bank = params.bank_type, grad = params.grad_type;
  const StoredRows rows[] = {{"grad", params.grad, grad},
                             {"bank", params.bank, bank},
                             {"gy", params.gy, RowType::kFloat32}};
  const bool narrow = bank == RowType::kBFloat16 || grad == RowType::kBFloat16;
  const int32_t columns = piece_columns(params.hd, narrow ? 8 : 4, rows);

  StepGeometry geometry;
  geometry.entry = entry_name("gx_gds", {bank, grad}, columns);
  use_records(geometry,
              record_grid({params.hd, columns, params.num_parallel,
                           params.chunk_size * params.num_reads, kGdsShape.warps()},
                          target.sm_count),
              kGdsShape,
              columns == 0 ? gds_ring_bytes(kGdsShape, kAnyRow, kAnyRow, kLaneColumns)
                           : gds_ring_bytes(kGdsShape, bank, grad, columns));
  geometry.alignments = piece_alignments(rows, columns);
  return geometry;
}

}  // namespace sdm
