#include "kernels/layer/slot_select/slot_select_geometry.h"

#include <algorithm>

#include "kernels/layer/slot_select/slot_select_block.h"
#include "kernels/layer/slot_select/slot_select_math.h"
#include "plancap/base/error.h"

namespace sdm {
namespace {

constexpr int32_t kBlocksPerSm = 16;  // of a side: several waves, so that no warp's end is late

bool side_fits(const SlotSelectSide& side, const SelectShape& shape) {
  // Where fewer slots are selected, so many stand-ins are ranked above all candidates.
  return side.scores == nullptr ||
         (side.count <= shape.kept &&
          side.candidates + shape.kept - side.count <= shape.most_candidates());
}

bool fits(const SlotSelectParams& params, const SelectShape& shape) {
  return params.num_factors == 2 &&
         std::max(params.widths[0], params.widths[1]) <= shape.most_width() &&
         side_fits(params.key, shape) && side_fits(params.query, shape);
}

void use_rows(StepGeometry& geometry, const plancap::Target& target, const SlotSelectParams& params,
              int64_t rows_per_block) {
  const int64_t blocks = (head_rows(params) + rows_per_block - 1) / rows_per_block;
  const int64_t most = int64_t{kBlocksPerSm} * target.sm_count;
  geometry.config.grid.x = static_cast<uint32_t>(std::min(blocks, most));
  geometry.config.grid.y = params.key.scores && params.query.scores ? 2 : 1;
}

}  // namespace

StepGeometry slot_select_geometry(const plancap::Target& target, const SlotSelectParams& params) {
  StepGeometry geometry;
  if (params.key_wide_loads) geometry.alignments.push_back({"key_scores", 16});
  if (params.query_wide_loads) geometry.alignments.push_back({"query_scores", 16});
  const char* type = params.row_type == RowType::kFloat32 ? "f32" : "bf16";
  for (const SelectShape& shape : {kSelect16, kSelect32, kSelect64}) {
    if (!fits(params, shape)) continue;
    geometry.entry = cat("slot_select_k", shape.kept, "_", type);
    geometry.config.block.x = kSelectThreads;
    geometry.config.shared_bytes = shape.shared_bytes();
    use_rows(geometry, target, params, int64_t{kSelectWarps} * shape.rows());
    return geometry;
  }
  const int32_t widest = *std::max_element(params.widths, params.widths + params.num_factors);
  const int32_t bytes = wide_map(params).total;
  const int32_t warps = std::clamp(kWideBlockBytes / bytes, 1, kWideMostWarps);
  geometry.entry = widest <= 256 ? "slot_select_any_w256" : "slot_select_any_w1024";
  geometry.config.block.x = static_cast<uint32_t>(32 * warps);
  geometry.config.shared_bytes = static_cast<uint32_t>(bytes * warps);
  use_rows(geometry, target, params, warps);
  return geometry;
}

}  // namespace sdm
