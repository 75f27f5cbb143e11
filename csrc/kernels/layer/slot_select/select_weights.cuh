// From a row's scores, in slot order over lanes, to what is stored.
#pragma once
#include "kernels/layer/slot_select/slot_select_math.h"

namespace sdm {

// The balanced tree over kLanes lanes of E neighbouring places each. x is used up.
template <int kLanes, int E>
__device__ __forceinline__ float lanes_tree(float (&x)[E]) {
#pragma unroll
  for (int count = E / 2; count > 0; count /= 2) {
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = plus(x[2 * i], x[2 * i + 1]);
  }
  float sum = x[0];
#pragma unroll
  for (int bit = 1; bit < kLanes; bit *= 2) sum = plus(sum, __shfl_xor_sync(~0u, sum, bit));
  return sum;
}

// Turns the scores of places place .. place + E - 1 into weights; places from k on do not count.
// Returns the norm (kL2).
template <int kLanes, int E>
__device__ __forceinline__ float lanes_weights(const SlotSelectSide& side, int place,
                                               float (&x)[E]) {
  if (side.activation == SlotActivation::kNone) return 0.0f;
#pragma unroll
  for (int i = 0; i < E; ++i) x[i] = scaled_score(x[i], side.scale);
  float terms[E];
  if (side.activation == SlotActivation::kSoftmax) {
    float most = -infinite();
#pragma unroll
    for (int i = 0; i < E; ++i) most = larger(most, place + i < side.count ? x[i] : most);
#pragma unroll
    for (int bit = 1; bit < kLanes; bit *= 2) {
      most = larger(most, __shfl_xor_sync(~0u, most, bit));
    }
#pragma unroll
    for (int i = 0; i < E; ++i) {
      x[i] = exponential(plus(x[i], -most));
      terms[i] = place + i < side.count ? x[i] : 0.0f;
    }
    const float sum = lanes_tree<kLanes>(terms);
#pragma unroll
    for (int i = 0; i < E; ++i) x[i] = divided(x[i], sum);
    return 0.0f;
  }
#pragma unroll
  for (int i = 0; i < E; ++i) terms[i] = place + i < side.count ? times(x[i], x[i]) : 0.0f;
  const float norm = square_root(lanes_tree<kLanes>(terms));
#pragma unroll
  for (int i = 0; i < E; ++i) x[i] = divided(x[i], norm_floor(norm));
  return norm;
}

// Stores E places of a row.
template <int E>
__device__ __forceinline__ void store_places(const SlotSelectSide& side, const SelectRow& row,
                                             int place, const int32_t (&slots)[E],
                                             const float (&weights)[E]) {
  const int64_t at = row.out * side.count + place;
#pragma unroll
  for (int i = 0; i < E; ++i) {
    if (place + i < side.count) {
      side.slots[at + i] = row.first_slot + slots[i];
      side.weights[at + i] = weights[i];
    }
  }
}

}  // namespace sdm
