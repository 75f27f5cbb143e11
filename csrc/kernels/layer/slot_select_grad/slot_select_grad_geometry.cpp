#include "kernels/layer/slot_select_grad/slot_select_grad_geometry.h"

#include <algorithm>

#include "kernels/layer/slot_select_grad/slot_select_grad_block.h"

namespace sdm {

StepGeometry slot_select_grad_geometry(const plancap::Target& target,
                                       const SlotSelectGradParams& params) {
  constexpr int64_t kBlocksPerSm = 16;  // of a side: several waves, so that no warp's end is late
  const SlotGradMap map = slot_grad_map(params);
  const int32_t warps = std::clamp(kSlotGradBlockBytes / map.total, 1, kSlotGradWarps);
  const int64_t rows_per_block = int64_t{warps} * map.rows;
  const int64_t blocks = (head_rows(params) + rows_per_block - 1) / rows_per_block;

  StepGeometry geometry;
  geometry.entry = "slot_select_grad";
  geometry.config.grid.x =
      static_cast<uint32_t>(std::min(blocks, kBlocksPerSm * int64_t{target.sm_count}));
  geometry.config.grid.y = params.key.d_scores && params.query.d_scores ? 2 : 1;
  geometry.config.block.x = static_cast<uint32_t>(32 * warps);
  geometry.config.shared_bytes = static_cast<uint32_t>(map.total * warps);
  if (params.key.wide_stores) geometry.alignments.push_back({"key_d_scores", 16});
  if (params.query.wide_stores) geometry.alignments.push_back({"query_d_scores", 16});
  return geometry;
}

}  // namespace sdm
