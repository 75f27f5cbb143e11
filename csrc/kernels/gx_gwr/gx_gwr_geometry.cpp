#include "kernels/gx_gwr/gx_gwr_geometry.h"

#include "kernels/gx_gwr/gx_gwr_staging.h"

namespace sdm {

StepGeometry gx_gwr_geometry(const plancap::Target& target, const GxGwrParams& params) {
  const StoredRows rows[] = {{"grad", params.grad, params.grad_type},
                             {"delta", params.delta, RowType::kFloat32},
                             {"d_dv", params.d_dv, RowType::kFloat32}};
  const bool narrow = params.grad_type == RowType::kBFloat16;
  const int32_t columns = piece_columns(params.hd, narrow ? 8 : 4, rows);

  // A warp for every token and slice. Blocks as large as still leave one for every SM, with a
  // token's slices together, as its rows are read.
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int64_t slices = num_slices(params.hd);
  int64_t block_warps = 1;
  while (block_warps * kLanes < kGwrShape.threads &&
         block_warps * target.sm_count < tokens * slices) {
    block_warps *= 2;
  }
  int64_t block_slices = 1;
  while (block_slices < block_warps && block_slices < slices) block_slices *= 2;
  const int64_t block_tokens = block_warps / block_slices;

  StepGeometry geometry;
  geometry.entry = entry_name("gx_gwr", {params.grad_type}, columns);
  geometry.config.grid.x = static_cast<uint32_t>((tokens + block_tokens - 1) / block_tokens);
  geometry.config.grid.y = static_cast<uint32_t>((slices + block_slices - 1) / block_slices);
  geometry.config.block = {kLanes, static_cast<uint32_t>(block_slices),
                           static_cast<uint32_t>(block_tokens)};
  geometry.config.shared_bytes =
      static_cast<uint32_t>(block_warps * kGwrShape.warp_bytes(params.num_writes));
  geometry.alignments = piece_alignments(rows, columns);
  return geometry;
}

}  // namespace sdm
