#include "kernels/step/fx_write/fx_write_geometry.h"

#include "kernels/step/fx_write/fx_write_ring.h"

namespace sdm {
StepGeometry fx_write_geometry(const plancap::Target& target, const FxWriteParams& params) {
  const RowType bank = params.bank_type;
  const StoredRows rows[] = {{"bank", params.bank, bank},
                             {"snap", params.snap, bank},
                             {"delta", params.delta, RowType::kFloat32}};
  const int32_t columns = piece_columns(params.hd, bank == RowType::kBFloat16 ? 8 : 4, rows);

  StepGeometry geometry;
  geometry.entry = entry_name("fx_write", {bank}, columns);
  use_records(geometry,
              record_grid({params.hd, columns, params.num_parallel,
                           params.chunk_size * params.num_writes, kWriteShape.warps()},
                          target.sm_count),
              kWriteShape,
              columns == 0 ? write_ring_bytes(kWriteShape, kAnyRow, kLaneColumns)
                           : write_ring_bytes(kWriteShape, bank, columns));
  geometry.alignments = piece_alignments(rows, columns);
  return geometry;
}

}  // namespace sdm
