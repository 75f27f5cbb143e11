// From the scores of a token's selected slots to their weights, and the gradients back: what the
// two kernels and their host twins agree on. Sums over the slots are a balanced tree in slot order,
// neighbours first, over a power of two of at least 32 places; +0 stands where there is no slot.
#pragma once
#include "kernels/common/math/elementary.h"

namespace sdm {

enum class SlotActivation : int32_t {
  kNone = 0,     // the scores themselves
  kSoftmax = 1,  // exp(s - max) / sum
  kL2 = 2,       // s / max(norm, 1e-12)
};

inline constexpr int32_t kMaxSelected = 256;

// Places of the tree over k slots.
SDM_HD int32_t tree_places(int32_t k) {
  int32_t places = 32;
  while (places < k) places *= 2;
  return places;
}

// The larger one; NaN counts for nothing beside a number.
SDM_HD float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return a > b || b != b ? a : b;
#endif
}

// Scores times the scale, but for a scale of 1.
SDM_HD float scaled_score(float score, float scale) {
  return scale == 1.0f ? score : times(scale, score);
}

// What a score is divided by. A NaN stays one.
SDM_HD float norm_floor(float norm) { return norm < 1e-12f ? 1e-12f : norm; }

// An entry's part in <d_weight, weight>.
SDM_HD float weight_product(float d_weight, float weight) { return times(d_weight, weight); }

// The gradient of a slot's score (before the scale) from the entry's own and the sum over all of
// weight_product. norm: kL2's, before norm_floor.
SDM_HD float score_gradient(SlotActivation activation, float scale, float d_weight, float weight,
                            float dot, float norm) {
  if (activation == SlotActivation::kNone) return d_weight;
  float gradient = times(weight, plus(d_weight, -dot));
  if (activation == SlotActivation::kL2) {
    // Below the floor the norm is no part of the weight.
    const float along = norm < 1e-12f ? 0.0f : times(weight, dot);
    gradient = divided(plus(d_weight, -along), norm_floor(norm));
  }
  return scaled_score(gradient, scale);
}

}  // namespace sdm
