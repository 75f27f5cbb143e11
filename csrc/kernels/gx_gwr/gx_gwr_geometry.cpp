#include "kernels/gx_gwr/gx_gwr_geometry.h"

#include <algorithm>

#include "kernels/gx_gwr/gx_gwr_staging.h"

namespace sdm {
namespace {

constexpr int64_t kFewWarps = 8;  // per SM

// Warps of a launch: those that hold a row's slices, and those that hold all tokens.
struct Warps {
  int64_t slices, tokens;
  int64_t total() const { return slices * tokens; }
};

Warps warps(const GxGwrParams& params, int32_t columns) {
  const TeamLayout layout = team_layout(params.hd, held_columns(columns));
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  return {layout.slice_groups, (tokens + layout.streams_per_warp - 1) / layout.streams_per_warp};
}

}  // namespace

StepGeometry gx_gwr_geometry(const plancap::Target& target, const GxGwrParams& params) {
  const StoredRows rows[] = {{"grad", params.grad, params.grad_type},
                             {"delta", params.delta, RowType::kFloat32},
                             {"d_dv", params.d_dv, RowType::kFloat32}};
  // 16-byte pieces take half as many instructions, 8-byte pieces give twice as many warps, which
  // counts where there are few.
  const bool few = warps(params, 4).total() <= kFewWarps * target.sm_count;
  const bool narrow = params.grad_type == RowType::kBFloat16;
  const int32_t columns = piece_columns(params.hd, narrow && !few ? 8 : 4, rows);
  const Warps count = warps(params, columns);

  // Blocks as large as still leave one for every SM; a row's slices together, as they are read.
  int64_t block_warps = 1;
  while (block_warps * kLanes < kGwrThreads && block_warps * target.sm_count < count.total()) {
    block_warps *= 2;
  }
  int64_t block_slices = 1;
  while (block_slices < block_warps && block_slices < count.slices) block_slices *= 2;
  const int64_t block_tokens = block_warps / block_slices;

  StepGeometry geometry;
  geometry.entry = entry_name("gx_gwr", {params.grad_type}, columns);
  geometry.config.grid.x = static_cast<uint32_t>((count.tokens + block_tokens - 1) / block_tokens);
  geometry.config.grid.y = static_cast<uint32_t>((count.slices + block_slices - 1) / block_slices);
  geometry.config.block = {kLanes, static_cast<uint32_t>(block_slices),
                           static_cast<uint32_t>(block_tokens)};
  const TeamLayout layout = team_layout(params.hd, held_columns(columns));
  geometry.config.shared_bytes = static_cast<uint32_t>(block_warps * layout.streams_per_warp *
                                                       gwr_staged_writes(params.num_writes) *
                                                       static_cast<int64_t>(sizeof(GwrWrite)));
  geometry.alignments = piece_alignments(rows, columns);
  return geometry;
}

}  // namespace sdm
