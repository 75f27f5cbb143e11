#include <cstring>
#include <limits>

#include "kernels/linear/bf16_linear/bf16_linear.h"
#include "kernels/linear/bf16_linear/bf16_linear_fill.h"
#include "plancap/base/error.h"
#include "plancap/format/param_view.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::ParamView;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// The numbers by themselves.
void check_sizes(const ParamView& view, const Bf16LinearParams& params) {
  view.range("num_tokens", params.num_tokens, 1, kMaxBf16LinearTokens);
  view.range("num_rows", params.num_rows, 1, kMaxBf16LinearRows);
  view.range("depth", params.depth, 8, kMaxBf16LinearDepth);
  view.expect(params.depth % 8 == 0, "depth", "a multiple of 8", cat(params.depth));
  view.range("tactic", params.tactic, 0, kNumBf16LinearTactics - 1);
  const Bf16LinearTactic& tactic = kBf16LinearTactics[params.tactic];
  view.expect(bf16_linear_splits_valid(tactic, params.splits), "splits",
              cat("one of ", bf16_linear_splits_words(tactic), " for ", bf16_linear_entry(tactic)),
              cat(params.splits));
  const int32_t inverse = bf16_linear_inverse(params.splits);
  view.range("split_inverse", params.split_inverse, inverse, inverse);
  view.range("trigger_lead", params.trigger_lead, 0, kMaxInt32);
  view.range("prefetch_tiles", params.prefetch_tiles, 0, 1 << 20);
  view.range("paired_store", params.paired_store, 0, params.y_stride % 2 == 0);
}

// A [rows, columns] operand with this row stride, from its address on, a multiple of `align` bytes.
void check_matrix(const ParamView& view, const char* field, const char* stride_field, Access access,
                  uint32_t align, int64_t rows, int64_t columns, int64_t stride) {
  view.range(stride_field, stride, columns, kMaxInt32);
  const auto elements = static_cast<uint64_t>((rows - 1) * stride + columns);
  view.reach_bytes(field, access, align, elements * sizeof(uint16_t));
}

// The launch is the one that the tactic and the sizes ask for.
void check_geometry(const ParamView& view, const Bf16LinearParams& params,
                    const Bf16LinearShape& shape, Bf16LinearChoice choice) {
  const Bf16LinearTactic& tactic = kBf16LinearTactics[choice.tactic];
  const Bf16LinearParams filled = bf16_linear_fill({}, shape, choice);
  view.range("depth_tiles", params.depth_tiles, filled.depth_tiles, filled.depth_tiles);
  const Bf16LinearGrid grid = bf16_linear_grid(shape, choice);
  const plancap::LaunchConfig config = view.config();
  const bool fits = config.grid == plancap::Dim3{grid.x, grid.y, 1} &&
                    config.block == plancap::Dim3{kBf16LinearThreads, 1, 1} &&
                    config.cluster == plancap::Dim3{grid.cluster_x, 1, 1} &&
                    config.shared_bytes == bf16_linear_shared_map(tactic).total;
  view.expect(fits, "tactic", cat("the launch geometry of ", bf16_linear_entry(tactic)), "another");
  view.expect(view.entry() == bf16_linear_entry(tactic), "tactic", bf16_linear_entry(tactic),
              view.entry());
}

}  // namespace

void check_bf16_linear_plan(const ParamView& view) {
  Bf16LinearParams params;  // the block in a plan may be less aligned than the struct
  std::memcpy(&params, view.block().data(), sizeof(params));
  check_sizes(view, params);
  const int64_t m = params.num_tokens, n = params.num_rows, k = params.depth;
  check_matrix(view, "weight", "weight_stride", Access::kRead, 16, n, k, params.weight_stride);
  check_matrix(view, "x", "x_stride", Access::kRead, 16, m, k, params.x_stride);
  check_matrix(view, "y", "y_stride", Access::kWrite, params.paired_store ? 4 : 2, m, n,
               params.y_stride);
  if (view.has("bias")) view.reach<uint16_t>("bias", Access::kRead, static_cast<uint64_t>(n));
  check_geometry(view, params, {m, n, k}, {params.tactic, params.splits});
}

}  // namespace sdm
