#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/common/host/host_parallel.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/layer/slot_select/slot_select.h"
#include "kernels/layer/slot_select/slot_select_math.h"

namespace sdm {
namespace {

// A thread's working memory; sized once, for every row of a side.
class RowSelection {
 public:
  RowSelection(const SlotSelectParams& params, const SlotSelectSide& side)
      : params_(params), side_(side), columns_(row_columns(params)), slots_(row_slots(params)) {
    const int32_t widest = *std::max_element(params.widths, params.widths + params.num_factors);
    keys_.resize(static_cast<size_t>(std::max(widest, side.candidates)));
    int32_t kept = 0;
    for (int32_t f = 0; f < params.num_factors; ++f) {
      starts_[f] = kept;
      kept += std::min(side.count, params.widths[f]);
    }
    values_.resize(static_cast<size_t>(kept));
    parts_.resize(static_cast<size_t>(kept));
    sums_.resize(static_cast<size_t>(side.candidates));
    // The table by factor, each position where it leads to in `values_`.
    places_.resize(static_cast<size_t>(side.candidates) * static_cast<size_t>(params.num_factors));
    for (int32_t f = 0; f < params.num_factors; ++f) {
      const int32_t most = std::min(side.count, params.widths[f]);
      for (int32_t c = 0; c < side.candidates; ++c) {
        places_[place_of(f, c)] = starts_[f] + table_position(side, params.num_factors, c, f, most);
      }
    }
  }

  void run(int32_t row) {
    const SelectRow at = select_row(params_, side_, row, columns_, slots_);
    rank_factors(at.scores);
    add_candidates();
    choose();
    store(at);
  }

 private:
  size_t place_of(int32_t factor, int32_t candidate) const {
    return static_cast<size_t>(factor) * static_cast<size_t>(side_.candidates) +
           static_cast<size_t>(candidate);
  }

  // Every factor's best columns, the best first.
  void rank_factors(int64_t first) {
    int32_t stride = slots_;
    for (int32_t f = 0; f < params_.num_factors; ++f) {
      const int32_t width = params_.widths[f], kept = std::min(side_.count, width);
      stride /= width;
      for (int32_t c = 0; c < width; ++c) {
        const uint32_t rank = rank_bits(score_at(side_.scores, params_.row_type, first + c));
        keys_[static_cast<size_t>(c)] = uint64_t{rank} << 32 | static_cast<uint32_t>(c);
      }
      take_best(kept, width);
      std::sort(keys_.begin(), keys_.begin() + kept, std::greater<>());
      for (int32_t i = 0; i < kept; ++i) {
        const auto column = static_cast<int32_t>(keys_[static_cast<size_t>(i)]);
        const auto place = static_cast<size_t>(starts_[f] + i);
        values_[place] = score_at(side_.scores, params_.row_type, first + column);
        parts_[place] = column * stride;
      }
      first += width;
    }
  }

  void add_candidates() {
    const auto count = static_cast<size_t>(side_.candidates);
    for (size_t c = 0; c < count; ++c) sums_[c] = values_[static_cast<size_t>(places_[c])];
    for (int32_t f = 1; f < params_.num_factors; ++f) {
      const int32_t* places = places_.data() + place_of(f, 0);
      for (size_t c = 0; c < count; ++c) {
        sums_[c] = plus(sums_[c], values_[static_cast<size_t>(places[c])]);
      }
    }
  }

  // The best k, of equal sums the first in the table; then by slot.
  void choose() {
    const auto count = static_cast<size_t>(side_.candidates);
    for (size_t c = 0; c < count; ++c) {
      keys_[c] = uint64_t{rank_bits(sums_[c])} << 32 | (~static_cast<uint32_t>(c));
    }
    take_best(side_.count, side_.candidates);
    for (int32_t i = 0; i < side_.count; ++i) {
      const uint32_t candidate = ~static_cast<uint32_t>(keys_[static_cast<size_t>(i)]);
      int32_t slot = 0;
      for (int32_t f = 0; f < params_.num_factors; ++f) {
        slot += parts_[static_cast<size_t>(places_[place_of(f, static_cast<int32_t>(candidate))])];
      }
      keys_[static_cast<size_t>(i)] = uint64_t{static_cast<uint32_t>(slot)} << 32 | candidate;
    }
    std::sort(keys_.begin(), keys_.begin() + side_.count);
  }

  // The largest `kept` of the first `count` keys to the front.
  void take_best(int32_t kept, int32_t count) {
    if (kept == count) return;
    std::nth_element(keys_.begin(), keys_.begin() + (kept - 1), keys_.begin() + count,
                     std::greater<>());
  }

  void store(const SelectRow& at) {
    const int64_t first = at.out * side_.count;
    int32_t* slots = side_.slots + first;
    float* weights = side_.weights + first;
    for (int32_t i = 0; i < side_.count; ++i) {
      const uint64_t key = keys_[static_cast<size_t>(i)];
      slots[i] = at.first_slot + static_cast<int32_t>(key >> 32);
      weights[i] = sums_[static_cast<uint32_t>(key)];
    }
    if (side_.activation == SlotActivation::kNone) return;
    for (int32_t i = 0; i < side_.count; ++i) weights[i] = scaled_score(weights[i], side_.scale);
    if (side_.activation == SlotActivation::kSoftmax) {
      soften(weights);
    } else {
      side_.norms[at.out] = normalize(weights);
    }
  }

  void soften(float* weights) {
    float most = -infinite();
    for (int32_t i = 0; i < side_.count; ++i) most = larger(most, weights[i]);
    float terms[kMaxSelected] = {};
    for (int32_t i = 0; i < side_.count; ++i) {
      terms[i] = weights[i] = exponential(plus(weights[i], -most));
    }
    const float sum = tree_sum(terms);
    for (int32_t i = 0; i < side_.count; ++i) weights[i] = divided(weights[i], sum);
  }

  float normalize(float* weights) {
    float terms[kMaxSelected] = {};
    for (int32_t i = 0; i < side_.count; ++i) terms[i] = times(weights[i], weights[i]);
    const float norm = square_root(tree_sum(terms));
    for (int32_t i = 0; i < side_.count; ++i) weights[i] = divided(weights[i], norm_floor(norm));
    return norm;
  }

  float tree_sum(float* terms) const {
    for (int32_t count = tree_places(side_.count) / 2; count > 0; count /= 2) {
      for (int32_t i = 0; i < count; ++i) terms[i] = plus(terms[2 * i], terms[2 * i + 1]);
    }
    return terms[0];
  }

  const SlotSelectParams& params_;
  const SlotSelectSide& side_;
  const int32_t columns_, slots_;
  int32_t starts_[kMaxFactors] = {};
  std::vector<uint64_t> keys_;
  std::vector<float> values_, sums_;
  std::vector<int32_t> parts_, places_;
};

}  // namespace

void slot_select_host(const SlotSelectParams& params) {
  const int64_t rows = head_rows(params);
  for (const SlotSelectSide* side : {&params.key, &params.query}) {
    if (side->scores == nullptr) continue;
    const int64_t elements = rows * (row_columns(params) + side->candidates);
#pragma omp parallel if (elements > kSerialElements / 8)
    {
      const FloatMode mode;
      RowSelection selection(params, *side);
#pragma omp for schedule(static)
      for (int64_t row = 0; row < rows; ++row) selection.run(static_cast<int32_t>(row));
    }
  }
}

}  // namespace sdm
