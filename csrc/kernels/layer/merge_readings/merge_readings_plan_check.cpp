#include <algorithm>

#include "kernels/layer/merge_readings/merge_readings.h"
#include "kernels/layer/merge_readings/merge_readings_block.h"
#include "kernels/layer/merge_readings/merge_readings_geometry.h"
#include "kernels/layer/merge_readings/merge_readings_math.h"
#include "kernels/layer/token_operands.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

void check_sizes(const ParamView& view, const MergeReadingsParams& params) {
  check_call_sizes(view, params.num_batches, params.num_tokens, params.num_heads);
  const int64_t tokens = int64_t{params.num_batches} * params.num_tokens;
  view.expect(tokens <= kMostTokens / params.num_heads, "num_heads", "B * T * H below 2^31",
              cat(tokens, " * ", params.num_heads));
  view.range("hd", params.hd, 1, 1 << 20);
  check_plain_type(view, "readings_type", params.readings_type);
  check_plain_type(view, "norm_type", params.norm_type);
  check_plain_type(view, "gate_type", params.gate_type);
  check_plain_type(view, "merged_type", params.merged_type);
  check_token_strides(view, "readings_batch_stride", params.readings_batch_stride,
                      "readings_token_stride", params.readings_token_stride);
  check_token_strides(view, "gate_batch_stride", params.gate_batch_stride, "gate_token_stride",
                      params.gate_token_stride);
  view.range("readings_head_stride", params.readings_head_stride, 0,
             std::numeric_limits<int64_t>::max());
  const bool both = view.has("norm_weight") == view.has("norm_bias");
  view.expect(both, "norm_bias", "both of the norm's operands, or none", "one");
}

// Pieces of four columns need operands that are aligned to them; any launch the block that the
// slices ask for, and room for their sums.
void check_geometry(const ParamView& view, const MergeReadingsParams& params) {
  if (view.backend() != plancap::Backend::kCuda || view.config().grid.volume() == 0) return;
  const plancap::LaunchConfig config = view.config();
  const auto row_warps = static_cast<uint32_t>(std::min(num_slices(params.hd), kMergeWarps));
  const bool fits = config.block.x == kLanes && config.block.y == row_warps &&
                    config.block.z * row_warps <= kMergeWarps &&
                    config.shared_bytes == merge_shared_bytes(params, config.block.z);
  view.expect(fits, "hd", "the launch geometry of so many columns", "another");
  if (view.entry() == "merge_readings_x1") return;
  const int64_t strides = params.hd | params.readings_batch_stride | params.readings_token_stride |
                          params.readings_head_stride | params.gate_batch_stride |
                          params.gate_token_stride;
  view.expect(strides % kLaneColumns == 0, "hd", "rows of whole pieces of 4 columns",
              "another distance or width");
  const auto aligned = [&](const char* field, Access access, RowType type) {
    if (view.has(field)) view.reach_bytes(field, access, type == RowType::kFloat32 ? 16 : 8, 0);
  };
  aligned("readings", Access::kRead, params.readings_type);
  aligned("norm_weight", Access::kRead, params.norm_type);
  aligned("norm_bias", Access::kRead, params.norm_type);
  aligned("gate", Access::kRead, params.gate_type);
  aligned("merged", Access::kWrite, params.merged_type);
}

}  // namespace

void check_merge_readings_plan(const ParamView& view) {
  const auto& params = view.get<MergeReadingsParams>();
  check_sizes(view, params);
  const int64_t batches = params.num_batches, tokens = params.num_tokens, heads = params.num_heads;
  reach_values(view, "readings", Access::kRead, params.readings_type,
               strided_span({{batches, params.readings_batch_stride},
                             {tokens, params.readings_token_stride},
                             {heads, params.readings_head_stride}},
                            params.hd));
  reach_values(view, "merged", Access::kWrite, params.merged_type,
               volume({batches, tokens, heads, params.hd}));
  if (view.has("norm_weight")) {
    const auto columns = static_cast<uint64_t>(params.hd);
    reach_values(view, "norm_weight", Access::kRead, params.norm_type, columns);
    reach_values(view, "norm_bias", Access::kRead, params.norm_type, columns);
  }
  if (view.has("gate")) {
    reach_values(
        view, "gate", Access::kRead, params.gate_type,
        strided_span({{batches, params.gate_batch_stride}, {tokens, params.gate_token_stride}},
                     heads * params.hd));
  }
  check_geometry(view, params);
}

}  // namespace sdm
