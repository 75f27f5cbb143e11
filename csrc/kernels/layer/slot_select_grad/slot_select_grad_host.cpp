#include <algorithm>
#include <vector>

#include "kernels/common/host/host_parallel.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/rows/typed_values.h"
#include "kernels/layer/slot_select_grad/slot_select_grad.h"
#include "kernels/layer/slot_select_grad/slot_select_grad_math.h"

namespace sdm {
namespace {

// A thread's working memory.
class RowGradient {
 public:
  RowGradient(const SlotSelectGradParams& params, const SlotGradSide& side)
      : params_(params), side_(side), slots_(row_slots(params)) {
    dense_.resize(static_cast<size_t>(params.num_columns));
  }

  void run(int32_t row) {
    const HeadRow at = head_row(params_, row);
    const int64_t out = int64_t{at.sequence} * params_.num_tokens + at.token;
    score_gradients(out);
    std::fill(dense_.begin(), dense_.end(), 0.0f);
    const int32_t* slots = side_.slots + out * side_.count;
    for (int32_t i = 0; i < side_.count; ++i)
      add(row_slot(slots[i], at.sequence * slots_, slots_), i);
    const int64_t first = int64_t{row} * params_.num_columns;
    for (int32_t c = 0; c < params_.num_columns; ++c) {
      store_value(side_.d_scores, params_.row_type, first + c, dense_[static_cast<size_t>(c)]);
    }
  }

 private:
  void score_gradients(int64_t out) {
    const float* d_weights = side_.d_weights + out * side_.count;
    const float* weights = side_.weights ? side_.weights + out * side_.count : nullptr;
    float dot = 0.0f;
    if (weights != nullptr) {
      float terms[kMaxSelected] = {};
      for (int32_t i = 0; i < side_.count; ++i) terms[i] = weight_product(d_weights[i], weights[i]);
      for (int32_t count = tree_places(side_.count) / 2; count > 0; count /= 2) {
        for (int32_t i = 0; i < count; ++i) terms[i] = plus(terms[2 * i], terms[2 * i + 1]);
      }
      dot = terms[0];
    }
    const float norm = side_.norms ? side_.norms[out] : 0.0f;
    for (int32_t i = 0; i < side_.count; ++i) {
      gradients_[i] = score_gradient(side_.activation, side_.scale, d_weights[i],
                                     weights ? weights[i] : 0.0f, dot, norm);
    }
  }

  void add(RowSlot entry, int32_t i) {
    int32_t rest = entry.slot, first = 0;
    int32_t parts = slots_;
    for (int32_t f = 0; f < params_.num_factors; ++f) {
      parts /= params_.widths[f];
      const int32_t column = divided_by(rest, params_.by_parts[f]);
      rest -= column * parts;
      float& sum = dense_[static_cast<size_t>(first + column)];
      sum = plus(sum, entry.counts ? gradients_[i] : 0.0f);
      first += params_.widths[f];
    }
  }

  const SlotSelectGradParams& params_;
  const SlotGradSide& side_;
  const int32_t slots_;
  float gradients_[kMaxSelected] = {};
  std::vector<float> dense_;
};

}  // namespace

void slot_select_grad_host(const SlotSelectGradParams& params) {
  const int64_t rows = head_rows(params);
  for (const SlotGradSide* side : {&params.key, &params.query}) {
    if (side->d_scores == nullptr) continue;
    const int64_t elements = rows * (params.num_columns + side->count);
#pragma omp parallel if (elements > kSerialElements)
    {
      const FloatMode mode;
      RowGradient gradient(params, *side);
#pragma omp for schedule(static)
      for (int64_t row = 0; row < rows; ++row) gradient.run(static_cast<int32_t>(row));
    }
  }
}

}  // namespace sdm
