#include "kernels/step/gx_gwr/gx_gwr_geometry.h"

#include "kernels/common/launch/token_grid.h"
#include "kernels/step/gx_gwr/gx_gwr_shape.h"

namespace sdm {

StepGeometry gx_gwr_geometry(const plancap::Target& target, const GxGwrParams& params) {
  const StoredRows rows[] = {{"grad", params.grad, params.grad_type},
                             {"delta", params.delta, RowType::kFloat32},
                             {"d_dv", params.d_dv, RowType::kFloat32}};
  const bool narrow = params.grad_type == RowType::kBFloat16;
  const int32_t columns = piece_columns(params.hd, narrow ? 8 : 4, rows);

  StepGeometry geometry;
  geometry.entry = entry_name("gx_gwr", {params.grad_type}, columns);
  geometry.config = token_config(kGwrShape, int64_t{params.num_parallel} * params.chunk_size,
                                 params.hd, kGwrShape.staged_entries(params.num_writes), target);
  geometry.alignments = piece_alignments(rows, columns);
  return geometry;
}

}  // namespace sdm
