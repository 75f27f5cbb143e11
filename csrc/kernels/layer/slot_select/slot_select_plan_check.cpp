#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/common/launch/row_checks.h"
#include "kernels/layer/slot_select/slot_select.h"
#include "kernels/layer/slot_select/slot_select_block.h"
#include "kernels/layer/slot_select/slot_select_geometry.h"
#include "kernels/layer/slot_select/slot_select_math.h"
#include "plancap/format/param_view.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

bool same(const Divider& a, const Divider& b) {
  return a.multiplier == b.multiplier && a.shift == b.shift;
}

// The numbers that both sides share. Returns the slots of a row.
int64_t check_sizes(const ParamView& view, const SlotSelectParams& params) {
  check_plain_type(view, "row_type", params.row_type);
  view.range("num_factors", params.num_factors, 1, kMaxFactors);
  int64_t slots = 1;
  for (int32_t f = 0; f < kMaxFactors; ++f) {
    const bool there = f < params.num_factors;
    view.range("widths", params.widths[f], there ? 1 : 0, there ? kMaxFactorWidth : 0);
    if (there) view.range("widths", slots *= params.widths[f], 1, kMost);
  }
  view.range("num_batches", params.num_batches, 1, kMost);
  view.range("num_tokens", params.num_tokens, 1, kMost / params.num_batches);
  view.range("num_heads", params.num_heads, 1,
             kMost / (int64_t{params.num_batches} * params.num_tokens));
  view.expect(same(params.by_heads, make_divider(params.num_heads)), "by_heads",
              "the division by num_heads", "another");
  view.expect(same(params.by_tokens, make_divider(params.num_tokens)), "by_tokens",
              "the division by num_tokens", "another");
  return slots;
}

// A field of one side by its name.
class SideView {
 public:
  SideView(const ParamView& view, std::string prefix) : view_(view), prefix_(std::move(prefix)) {}

  bool there() const {
    for (const char* field : {"scores", "positions", "slots", "weights", "norms"}) {
      if (view_.has(name(field).c_str())) return true;
    }
    return false;
  }

  void check(const SlotSelectParams& params, const SlotSelectSide& side, int32_t wide_loads,
             int64_t slots) const {
    if (!there()) return check_absent(side, wide_loads);
    const int64_t sequences = int64_t{params.num_batches} * params.num_heads;
    range("count", side.count, 1, std::min<int64_t>(kMaxSelected, slots));
    range("candidates", side.candidates, side.count, kMaxCandidates);
    range("activation", static_cast<int32_t>(side.activation), 0,
          static_cast<int32_t>(SlotActivation::kL2));
    range("wide_loads", wide_loads, 0, 1);
    view_.range("num_heads", sequences * slots, 1, kMost);
    check_scores(params, side, wide_loads != 0);
    reach<uint8_t>("positions", Access::kRead, volume({side.candidates, params.num_factors}));
    const uint64_t selected = volume({sequences, params.num_tokens, side.count});
    reach<int32_t>("slots", Access::kWrite, selected);
    reach<float>("weights", Access::kWrite, selected);
    const bool normalized = side.activation == SlotActivation::kL2;
    view_.expect(view_.has(name("norms").c_str()) == normalized, name("norms").c_str(),
                 normalized ? "an operand" : "no operand", normalized ? "none" : "one");
    if (normalized) {
      reach<float>("norms", Access::kWrite, volume({sequences, params.num_tokens}));
    }
  }

 private:
  std::string name(const char* field) const { return prefix_ + field; }
  void range(const char* field, int64_t value, int64_t lowest, int64_t highest) const {
    view_.range(name(field).c_str(), value, lowest, highest);
  }
  template <typename T>
  void reach(const char* field, Access access, uint64_t count) const {
    view_.reach<T>(name(field).c_str(), access, count);
  }

  // The block's memory is sized for both sides.
  void check_absent(const SlotSelectSide& side, int32_t wide_loads) const {
    range("count", side.count, 0, 0);
    range("candidates", side.candidates, 0, 0);
    range("wide_loads", wide_loads, 0, 0);
  }

  void check_scores(const SlotSelectParams& params, const SlotSelectSide& side,
                    bool wide_loads) const {
    const uint32_t bytes = params.row_type == RowType::kFloat32 ? 4 : 2;
    const int64_t most = std::numeric_limits<int64_t>::max() / 8;
    range("batch_stride", side.batch_stride, 0, most / params.num_batches);
    range("token_stride", side.token_stride, 0, most / params.num_tokens);
    const int64_t columns = int64_t{params.num_heads} * row_columns(params);
    const int64_t reached = (params.num_batches - 1) * side.batch_stride +
                            (params.num_tokens - 1) * side.token_stride + columns;
    bool pieces = side.batch_stride * bytes % 16 == 0 && side.token_stride * bytes % 16 == 0;
    for (int32_t f = 0; f < params.num_factors; ++f) {
      pieces = pieces && params.widths[f] * bytes % 16 == 0;
    }
    view_.expect(!wide_loads || pieces, name("wide_loads").c_str(),
                 "0, for factors that are not pieces of 16 bytes", "1");
    const bool on_device = view_.backend() == plancap::Backend::kCuda;
    view_.reach_bytes(name("scores").c_str(), Access::kRead, wide_loads && on_device ? 16 : bytes,
                      volume({reached, int64_t{bytes}}));
  }

  const ParamView& view_;
  std::string prefix_;
};

// The launch is the one that the sizes ask for; only the grid's width depends on the device.
void check_geometry(const ParamView& view, SlotSelectParams params, bool key, bool query) {
  if (view.backend() != plancap::Backend::kCuda) return;
  // The geometry asks for addresses only whether they are there.
  params.key.scores = key ? view.block().data() : nullptr;
  params.query.scores = query ? view.block().data() : nullptr;
  plancap::Target target;
  target.sm_count = 1;
  const StepGeometry filled = slot_select_geometry(target, params);
  const plancap::LaunchConfig config = view.config();
  const bool fits = config.block == filled.config.block && config.grid.x >= 1 &&
                    config.grid.y == filled.config.grid.y && config.grid.z == 1 &&
                    config.cluster == plancap::Dim3{} &&
                    config.shared_bytes == filled.config.shared_bytes;
  view.expect(fits, "widths", cat("the launch geometry of ", filled.entry), "another");
  view.expect(view.entry() == filled.entry, "widths", filled.entry, view.entry());
}

}  // namespace

void check_slot_select_plan(const ParamView& view) {
  SlotSelectParams params;  // the block in a plan may be less aligned than the struct
  std::memcpy(&params, view.block().data(), sizeof(params));
  const int64_t slots = check_sizes(view, params);
  const SideView key(view, "key_"), query(view, "query_");
  view.expect(key.there() || query.there(), "key_scores", "keys, queries or both", "neither");
  key.check(params, params.key, params.key_wide_loads, slots);
  query.check(params, params.query, params.query_wide_loads, slots);
  check_geometry(view, params, key.there(), query.there());
}

}  // namespace sdm
