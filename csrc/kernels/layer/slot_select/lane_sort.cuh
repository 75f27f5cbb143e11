// Sorting in registers, over groups of lanes of a warp. All loops are unrolled: the keys never
// leave the registers.
//
// A list over W lanes has V keys a lane, the largest first: lane l of its group holds places l*V to
// l*V + V - 1. Two neighbouring lists become one of twice the length, or, once a list is as long as
// wanted, the better half of both, over all lanes of both, half as many keys a lane.
#pragma once
#include <cstdint>

namespace sdm {

// Keys that a lane is left with.
template <typename Key, int kCount>
struct HeldKeys {
  Key at[kCount];
};

// The larger or the smaller one.
template <typename Key>
__device__ __forceinline__ Key kept_key(bool larger, Key a, Key b) {
  return (a > b) == larger ? a : b;
}

template <typename Key>
__device__ __forceinline__ void order_keys(Key& first, Key& second) {
  const bool ordered = first > second;
  const Key large = ordered ? first : second, small = ordered ? second : first;
  first = large, second = small;
}
template <>
__device__ __forceinline__ void order_keys(uint32_t& first, uint32_t& second) {
  const uint32_t large = max(first, second), small = min(first, second);
  first = large, second = small;
}

// Batcher's odd-even merge sort of a lane's keys: step q of merging runs of p.
template <int kP, int kQ, typename Key, int V>
__device__ __forceinline__ void odd_even_step(Key (&x)[V]) {
#pragma unroll
  for (int a = 0; a + kQ < V; ++a) {
    const bool first = a >= kQ % kP && (a - kQ % kP) / kQ % 2 == 0;
    if (first && a / (2 * kP) == (a + kQ) / (2 * kP)) order_keys(x[a], x[a + kQ]);
  }
  if constexpr (kQ > 1) {
    odd_even_step<kP, kQ / 2>(x);
  } else if constexpr (2 * kP < V) {
    odd_even_step<2 * kP, 2 * kP>(x);
  }
}

template <typename Key, int V>
__device__ __forceinline__ void sort_lane(Key (&x)[V]) {
  if constexpr (V > 1) odd_even_step<1, 1>(x);
}

// The last steps of a bitonic merge: those inside a lane.
template <int kDistance, typename Key, int V>
__device__ __forceinline__ void merge_lane(Key (&x)[V]) {
  if constexpr (kDistance > 0) {
#pragma unroll
    for (int a = 0; a < V; ++a) {
      if ((a & kDistance) == 0) order_keys(x[a], x[a + kDistance]);
    }
    merge_lane<kDistance / 2>(x);
  }
}

// A step between lanes that differ in one bit of their number.
template <int kBit, bool kReversed, typename Key, int V>
__device__ __forceinline__ void merge_lanes(Key (&x)[V], int lane) {
  Key other[V];
#pragma unroll
  for (int i = 0; i < V; ++i) {
    other[i] = __shfl_xor_sync(~0u, x[kReversed ? V - 1 - i : i], kBit);
  }
  const bool larger = (lane & kBit) == 0;
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = kept_key(larger, x[i], other[i]);
}

template <int kFrom, typename Key, int V>
__device__ __forceinline__ void merge_lower_bits(Key (&x)[V], int lane) {
  if constexpr (kFrom > 0) {
    merge_lanes<kFrom, false>(x, lane);
    merge_lower_bits<kFrom / 2>(x, lane);
  }
}

template <int kFrom, int kEnd, typename Key, int V>
__device__ __forceinline__ void merge_upper_bits(Key (&x)[V], int lane) {
  if constexpr (kFrom < kEnd) {
    merge_lanes<kFrom, false>(x, lane);
    merge_upper_bits<2 * kFrom, kEnd>(x, lane);
  }
}

// Two lists over W lanes each to one over 2W.
template <int W, typename Key, int V>
__device__ __forceinline__ void double_lists(Key (&x)[V], int lane) {
  Key other[V];
#pragma unroll
  for (int i = 0; i < V; ++i) other[i] = __shfl_xor_sync(~0u, x[V - 1 - i], 2 * W - 1);
  const bool larger = (lane & W) == 0;
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = kept_key(larger, x[i], other[i]);
  merge_lower_bits<W / 2>(x, lane);
  merge_lane<V / 2>(x);
}

// The better half of two lists over W lanes, unsorted, over 2W lanes. Place p of one list meets
// place V*W - 1 - p of the other, in the lane whose number differs in all bits; of the two lanes
// each takes the meetings of its own first half.
template <int W, typename Key, int V>
__device__ __forceinline__ void better_half(const Key (&x)[V], Key (&half)[V / 2]) {
#pragma unroll
  for (int i = 0; i < V / 2; ++i) {
    const Key other = __shfl_xor_sync(~0u, x[V - 1 - i], 2 * W - 1);
    half[i] = x[i] > other ? x[i] : other;
  }
}

// Sorts a better half. The lane's bit W says which half of the V places of a lane before; it counts
// less than the lower bits, and where it is set the places run backwards until its own step. The
// bits from kFirst on, of earlier halvings, count the less the higher they are.
template <int W, int kFirst, typename Key, int V>
__device__ __forceinline__ void sort_half(Key (&x)[V], int lane) {
  merge_lower_bits<kFirst / 2>(x, lane);
  merge_upper_bits<kFirst, W>(x, lane);
  merge_lanes<W, true>(x, lane);
  merge_lane<V / 2>(x);
}

template <int kTop, int kLanes, int W, int kFirst, typename Key, int V>
__device__ __forceinline__ auto join_lists(Key (&x)[V], int lane) {
  if constexpr (W == kLanes) {
    HeldKeys<Key, V> held;
#pragma unroll
    for (int i = 0; i < V; ++i) held.at[i] = x[i];
    return held;
  } else if constexpr (V * W < kTop) {
    double_lists<W>(x, lane);
    return join_lists<kTop, kLanes, 2 * W, 2 * W>(x, lane);
  } else {
    Key half[V / 2];
    better_half<W>(x, half);
    sort_half<W, kFirst>(half, lane);
    return join_lists<kTop, kLanes, 2 * W, kFirst>(half, lane);
  }
}

// The largest kTop keys (all, if there are fewer) of V in each of kLanes lanes, sorted. Key i of a
// lane has place list_place<..>(lane) + i.
template <int kTop, int kLanes, typename Key, int V>
__device__ __forceinline__ auto best_keys(Key (&x)[V], int lane) {
  sort_lane(x);
  return join_lists<kTop, kLanes, 1, 1>(x, lane);
}

template <int kTop, int kLanes, int V>
__device__ __forceinline__ int list_place(int lane) {
  constexpr int kFirst = kTop / V < kLanes ? (kTop / V > 0 ? kTop / V : 1) : kLanes;
  constexpr int kHeld = kFirst * V / kLanes;
  int place = lane % kFirst;
#pragma unroll
  for (int bit = kFirst; bit < kLanes; bit *= 2) place = 2 * place + ((lane & bit) != 0);
  return place * kHeld;
}

template <int kFrom, int kEnd, typename Key>
__device__ __forceinline__ Key smallest_of_lanes(Key x) {
  if constexpr (kFrom < kEnd) {
    const Key other = __shfl_xor_sync(~0u, x, kFrom);
    return smallest_of_lanes<2 * kFrom, kEnd>(x < other ? x : other);
  } else {
    return x;
  }
}

template <int kTop, int kLanes, int W, int kFirst, typename Key, int V>
__device__ __forceinline__ Key join_threshold(Key (&x)[V], int lane) {
  static_assert(W < kLanes, "fewer keys than are wanted");
  if constexpr (V * W < kTop) {
    double_lists<W>(x, lane);
    return join_threshold<kTop, kLanes, 2 * W, 2 * W>(x, lane);
  } else {
    Key half[V / 2];
    better_half<W>(x, half);
    if constexpr (2 * W < kLanes) {
      sort_half<W, kFirst>(half, lane);
      return join_threshold<kTop, kLanes, 2 * W, kFirst>(half, lane);
    } else {
      Key smallest = half[0];
#pragma unroll
      for (int i = 1; i < V / 2; ++i) smallest = half[i] < smallest ? half[i] : smallest;
      return smallest_of_lanes<1, kLanes>(smallest);
    }
  }
}

// The kTop-th largest key of V in each of kLanes lanes.
template <int kTop, int kLanes, typename Key, int V>
__device__ __forceinline__ Key threshold_key(Key (&x)[V], int lane) {
  sort_lane(x);
  return join_threshold<kTop, kLanes, 1, 1>(x, lane);
}

}  // namespace sdm
