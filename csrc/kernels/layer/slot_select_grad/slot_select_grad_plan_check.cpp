#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/common/launch/row_checks.h"
#include "kernels/layer/slot_select_grad/slot_select_grad.h"
#include "kernels/layer/slot_select_grad/slot_select_grad_geometry.h"
#include "plancap/format/param_view.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

void check_divider(const ParamView& view, const char* field, const Divider& given, int32_t by) {
  const Divider wanted = make_divider(by);
  view.expect(given.multiplier == wanted.multiplier && given.shift == wanted.shift, field,
              cat("the division by ", by), "another");
}

// The numbers that both sides share. Returns the slots of a row.
int64_t check_sizes(const ParamView& view, const SlotSelectGradParams& params) {
  check_plain_type(view, "row_type", params.row_type);
  view.range("num_factors", params.num_factors, 1, kMaxFactors);
  int64_t slots = 1;
  for (int32_t f = 0; f < kMaxFactors; ++f) {
    const bool there = f < params.num_factors;
    view.range("widths", params.widths[f], there ? 1 : 0, there ? kMaxFactorWidth : 0);
    if (there) view.range("widths", slots *= params.widths[f], 1, kMost);
  }
  for (int32_t f = params.num_factors - 1, parts = 1; f >= 0; parts *= params.widths[f--]) {
    check_divider(view, "by_parts", params.by_parts[f], parts);
  }
  const int32_t columns = row_columns(params);
  view.range("num_columns", params.num_columns, columns, columns);
  view.range("num_batches", params.num_batches, 1, kMost);
  view.range("num_tokens", params.num_tokens, 1, kMost / params.num_batches);
  view.range("num_heads", params.num_heads, 1,
             kMost / (int64_t{params.num_batches} * params.num_tokens));
  check_divider(view, "by_heads", params.by_heads, params.num_heads);
  check_divider(view, "by_tokens", params.by_tokens, params.num_tokens);
  return slots;
}

// A field of one side by its name.
class SideView {
 public:
  SideView(const ParamView& view, std::string prefix) : view_(view), prefix_(std::move(prefix)) {}

  bool there() const {
    for (const char* field : {"d_weights", "slots", "weights", "norms", "d_scores"}) {
      if (view_.has(name(field).c_str())) return true;
    }
    return false;
  }

  void check(const SlotSelectGradParams& params, const SlotGradSide& side, int64_t slots) const {
    if (!there()) {  // the block's memory is sized for both sides
      range("count", side.count, 0, 0);
      range("wide_stores", side.wide_stores, 0, 0);
      return;
    }
    const int64_t sequences = int64_t{params.num_batches} * params.num_heads;
    range("count", side.count, 1, std::min<int64_t>(kMaxSelected, slots));
    range("activation", static_cast<int32_t>(side.activation), 0,
          static_cast<int32_t>(SlotActivation::kL2));
    view_.range("num_heads", sequences * slots, 1, kMost);
    const uint64_t selected = volume({sequences, params.num_tokens, side.count});
    view_.reach<float>(name("d_weights").c_str(), Access::kRead, selected);
    view_.reach<int32_t>(name("slots").c_str(), Access::kRead, selected);
    optional("weights", side.activation != SlotActivation::kNone, selected);
    optional("norms", side.activation == SlotActivation::kL2,
             volume({sequences, params.num_tokens}));
    check_d_scores(params, side);
  }

 private:
  std::string name(const char* field) const { return prefix_ + field; }
  void range(const char* field, int64_t value, int64_t lowest, int64_t highest) const {
    view_.range(name(field).c_str(), value, lowest, highest);
  }

  void optional(const char* field, bool wanted, uint64_t count) const {
    const std::string full = name(field);
    view_.expect(view_.has(full.c_str()) == wanted, full.c_str(),
                 wanted ? "an operand" : "no operand", wanted ? "none" : "one");
    if (wanted) view_.reach<float>(full.c_str(), Access::kRead, count);
  }

  void check_d_scores(const SlotSelectGradParams& params, const SlotGradSide& side) const {
    const uint32_t bytes = params.row_type == RowType::kFloat32 ? 4 : 2;
    const bool pieces = params.num_columns * bytes % 16 == 0;
    range("wide_stores", side.wide_stores, 0, pieces ? 1 : 0);
    const bool on_device = view_.backend() == plancap::Backend::kCuda;
    const int64_t rows = head_rows(params);
    view_.reach_bytes(name("d_scores").c_str(), Access::kWrite,
                      side.wide_stores && on_device ? 16 : bytes,
                      volume({rows, params.num_columns, int64_t{bytes}}));
  }

  const ParamView& view_;
  std::string prefix_;
};

// The launch is the one that the sizes ask for; only the grid's width depends on the device.
void check_geometry(const ParamView& view, SlotSelectGradParams params, bool key, bool query) {
  if (view.backend() != plancap::Backend::kCuda) return;
  // The geometry asks for addresses only whether they are there.
  params.key.d_scores = key ? &params : nullptr;
  params.query.d_scores = query ? &params : nullptr;
  plancap::Target target;
  target.sm_count = 1;
  const StepGeometry filled = slot_select_grad_geometry(target, params);
  const plancap::LaunchConfig config = view.config();
  const bool fits = config.block == filled.config.block && config.grid.x >= 1 &&
                    config.grid.y == filled.config.grid.y && config.grid.z == 1 &&
                    config.cluster == plancap::Dim3{} &&
                    config.shared_bytes == filled.config.shared_bytes;
  view.expect(fits, "widths", cat("the launch geometry of ", filled.entry), "another");
  view.expect(view.entry() == filled.entry, "widths", filled.entry, view.entry());
}

}  // namespace

void check_slot_select_grad_plan(const ParamView& view) {
  SlotSelectGradParams params;  // the block in a plan may be less aligned than the struct
  std::memcpy(&params, view.block().data(), sizeof(params));
  const int64_t slots = check_sizes(view, params);
  const SideView key(view, "key_"), query(view, "query_");
  view.expect(key.there() || query.there(), "key_d_scores", "keys, queries or both", "neither");
  key.check(params, params.key, slots);
  query.check(params, params.query, slots);
  check_geometry(view, params, key.there(), query.there());
}

}  // namespace sdm
