#include "kernels/step/fx_read/fx_read_geometry.h"

#include "kernels/common/launch/token_grid.h"
#include "kernels/step/fx_read/fx_read_shape.h"

namespace sdm {

StepGeometry fx_read_geometry(const plancap::Target& target, const FxReadParams& params) {
  const RowType bank = params.bank_type;
  const StoredRows rows[] = {{"bank", params.bank, bank},
                             {"v", params.v, bank},
                             {"residual", params.residual, RowType::kFloat32},
                             {"reading", params.reading, RowType::kFloat32}};
  const int32_t columns = piece_columns(params.hd, bank == RowType::kBFloat16 ? 8 : 4, rows);
  const int32_t staged =
      kReadShape.staged_entries(params.num_writes) + kReadShape.staged_entries(params.num_reads);

  StepGeometry geometry;
  geometry.entry = entry_name("fx_read", {bank}, columns);
  geometry.config = token_config(kReadShape, int64_t{params.num_parallel} * params.chunk_size,
                                 params.hd, staged, target);
  geometry.alignments = piece_alignments(rows, columns);
  return geometry;
}

}  // namespace sdm
