#include "kernels/step/gx_pa2/gx_pa2_geometry.h"

#include "kernels/step/gx_pa2/gx_pa2_ring.h"

namespace sdm {
StepGeometry gx_pa2_geometry(const plancap::Target& target, const GxPa2Params& params) {
  const RowType bank = params.bank_type, snap = params.snap_type, grad = params.grad_type;
  const StoredRows rows[] = {{"grad", params.grad, grad},
                             {"bank", params.bank, bank},
                             {"snap", params.snap, snap},
                             {"d_u", params.d_u, RowType::kFloat32}};
  const bool narrow = bank == RowType::kBFloat16 || grad == RowType::kBFloat16;
  const int32_t columns = piece_columns(params.hd, narrow ? 8 : 4, rows);

  StepGeometry geometry;
  geometry.entry = entry_name("gx_pa2", {bank, snap, grad}, columns);
  use_records(geometry,
              record_grid({params.hd, columns, params.num_parallel,
                           params.chunk_size * params.num_writes, kPa2Shape.warps()},
                          target.sm_count),
              kPa2Shape,
              columns == 0 ? pa2_ring_bytes(kPa2Shape, kAnyRow, kAnyRow, kLaneColumns)
                           : pa2_ring_bytes(kPa2Shape, snap, grad, columns));
  geometry.alignments = piece_alignments(rows, columns);
  return geometry;
}

}  // namespace sdm
