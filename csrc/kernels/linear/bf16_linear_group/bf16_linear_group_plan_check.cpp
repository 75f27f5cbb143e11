#include <cstring>
#include <limits>

#include "kernels/linear/bf16_linear_group/bf16_linear_group.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_fields.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_fill.h"
#include "plancap/base/error.h"
#include "plancap/format/param_view.h"

namespace sdm {
namespace {

namespace fields = bf16_linear_group_fields;

using plancap::Access;
using plancap::ParamView;
using Params = Bf16LinearGroupParams;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// The numbers by themselves.
void check_sizes(const ParamView& view, const Params& params) {
  view.range("num_members", params.num_members, 1, kMaxBf16LinearMembers);
  view.range("num_tokens", params.num_tokens, 1, kMaxBf16LinearTokens);
  view.range("depth", params.depth, 8, kMaxBf16LinearDepth);
  view.expect(params.depth % 8 == 0, "depth", "a multiple of 8", cat(params.depth));
  view.expect(bf16_linear_group_has(params.tactic), "tactic",
              cat("one of ", bf16_linear_group_tactics_words()), cat(params.tactic));
  const Bf16LinearTactic& tactic = kBf16LinearTactics[params.tactic];
  view.expect(bf16_linear_splits_valid(tactic, params.splits), "splits",
              cat("one of ", bf16_linear_splits_words(tactic), " for ",
                  bf16_linear_group_entry(params.tactic)),
              cat(params.splits));
  const int32_t inverse = bf16_linear_inverse(params.splits);
  view.range("split_inverse", params.split_inverse, inverse, inverse);
  view.range("trigger_lead", params.trigger_lead, 0, kMaxInt32);
  view.range("prefetch_tiles", params.prefetch_tiles, 0, 1 << 20);
}

// A [rows, columns] operand with this row stride, from its address on.
void check_matrix(const ParamView& view, const char* field, Access access, uint32_t align,
                  int64_t rows, int64_t columns, int64_t stride) {
  const auto elements = static_cast<uint64_t>((rows - 1) * stride + columns);
  view.reach_bytes(field, access, align, elements * sizeof(uint16_t));
}

// A member that is there.
void check_member(const ParamView& view, const Params& params, int32_t i) {
  view.range(fields::kNumRows[i], params.num_rows[i], 1, kMaxBf16LinearRows);
  const int64_t m = params.num_tokens, n = params.num_rows[i], k = params.depth;
  view.range(fields::kWeightStride[i], params.weight_stride[i], k, kMaxInt32);
  check_matrix(view, fields::kWeight[i], Access::kRead, 16, n, k, params.weight_stride[i]);
  const bool paired = params.paired_stores >> i & 1;
  view.expect(!paired || n % 2 == 0, "paired_stores", "pairs only for an even number of rows",
              cat(fields::kNumRows[i], " = ", n));
  check_matrix(view, fields::kY[i], Access::kWrite, paired ? 4 : 2, m, n, n);
  const char* bias = fields::kBias[i];
  if (view.has(bias)) view.reach<uint16_t>(bias, Access::kRead, static_cast<uint64_t>(n));
}

// One that is not: nothing of it is there.
void check_no_member(const ParamView& view, const Params& params, int32_t i) {
  for (const char* field : {fields::kWeight[i], fields::kBias[i], fields::kY[i]}) {
    view.expect(!view.has(field), field, cat("no operand past ", params.num_members, " members"),
                "one");
  }
  view.range(fields::kNumRows[i], params.num_rows[i], 0, 0);
  view.range(fields::kWeightStride[i], params.weight_stride[i], 0, 0);
}

// The launch is the one that the tactic and the sizes ask for.
void check_geometry(const ParamView& view, const Params& params, const Bf16LinearGroupShape& shape,
                    Bf16LinearChoice choice) {
  const Params filled = bf16_linear_group_fill({}, shape, choice);
  view.range("depth_tiles", params.depth_tiles, filled.depth_tiles, filled.depth_tiles);
  for (int32_t i = 0; i < kMaxBf16LinearMembers; ++i) {
    view.range(fields::kFirstTile[i], params.first_tile[i], filled.first_tile[i],
               filled.first_tile[i]);
  }
  const std::string entry = bf16_linear_group_entry(choice.tactic);
  const Bf16LinearGrid grid =
      bf16_linear_grid(bf16_linear_group_as_one(shape, choice.tactic), choice);
  const plancap::LaunchConfig config = view.config();
  const bool fits =
      config.grid == plancap::Dim3{grid.x, grid.y, 1} &&
      config.block == plancap::Dim3{kBf16LinearThreads, 1, 1} &&
      config.cluster == plancap::Dim3{grid.cluster_x, 1, 1} &&
      config.shared_bytes == bf16_linear_shared_map(kBf16LinearTactics[choice.tactic]).total;
  view.expect(fits, "tactic", cat("the launch geometry of ", entry), "another");
  view.expect(view.entry() == entry, "tactic", entry, view.entry());
}

}  // namespace

void check_bf16_linear_group_plan(const ParamView& view) {
  Params params;  // the block in a plan may be less aligned than the struct
  std::memcpy(&params, view.block().data(), sizeof(params));
  check_sizes(view, params);
  view.range("paired_stores", params.paired_stores, 0, (1 << params.num_members) - 1);
  view.range("x_stride", params.x_stride, params.depth, kMaxInt32);
  check_matrix(view, "x", Access::kRead, 16, params.num_tokens, params.depth, params.x_stride);
  Bf16LinearGroupShape shape{params.num_tokens, params.depth, params.num_members};
  for (int32_t i = 0; i < kMaxBf16LinearMembers; ++i) {
    if (i < params.num_members) {
      check_member(view, params, i);
      shape.num_rows[i] = params.num_rows[i];
    } else {
      check_no_member(view, params, i);
    }
  }
  check_geometry(view, params, shape, {params.tactic, params.splits});
}

}  // namespace sdm
