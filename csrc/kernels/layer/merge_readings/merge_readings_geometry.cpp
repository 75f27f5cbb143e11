#include "kernels/layer/merge_readings/merge_readings_geometry.h"

#include <algorithm>

#include "kernels/layer/merge_readings/merge_readings_block.h"

namespace sdm {
namespace {

struct Operand {
  const char* name;
  const void* data;
  RowType type;
};

// Pieces of four columns: rows and addresses are multiples of them.
void use_wide(StepGeometry& geometry, const MergeReadingsParams& params) {
  const Operand operands[] = {{"readings", params.readings, params.readings_type},
                              {"norm_weight", params.norm_weight, params.norm_type},
                              {"norm_bias", params.norm_bias, params.norm_type},
                              {"gate", params.gate, params.gate_type},
                              {"merged", params.merged, params.merged_type}};
  const int64_t rows = params.hd | params.readings_batch_stride | params.readings_token_stride |
                       params.readings_head_stride | params.gate_batch_stride |
                       params.gate_token_stride;
  bool wide = rows % kLaneColumns == 0;
  std::vector<StepGeometry::Alignment> alignments;
  for (const Operand& operand : operands) {
    if (operand.data == nullptr) continue;
    const uint32_t bytes = operand.type == RowType::kFloat32 ? 16 : 8;
    wide = wide && reinterpret_cast<uintptr_t>(operand.data) % bytes == 0;
    alignments.push_back({operand.name, bytes});
  }
  geometry.entry = wide ? "merge_readings_x4" : "merge_readings_x1";
  if (wide) geometry.alignments = alignments;
}

}  // namespace

StepGeometry merge_readings_geometry(const plancap::Target& target,
                                     const MergeReadingsParams& params) {
  StepGeometry geometry;
  use_wide(geometry, params);
  const int64_t rows = int64_t{params.num_batches} * params.num_tokens * params.num_heads;
  const int32_t row_warps = std::min(num_slices(params.hd), kMergeWarps);
  int64_t block_rows = 1;  // as many as still leave a block for every SM
  while (2 * block_rows * row_warps <= kMergeWarps && block_rows * target.sm_count < rows) {
    block_rows *= 2;
  }
  geometry.config.grid.x = static_cast<uint32_t>((rows + block_rows - 1) / block_rows);
  geometry.config.block = {kLanes, static_cast<uint32_t>(row_warps),
                           static_cast<uint32_t>(block_rows)};
  geometry.config.shared_bytes = merge_shared_bytes(params, geometry.config.block.z);
  return geometry;
}

}  // namespace sdm
