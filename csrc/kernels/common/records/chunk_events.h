// A chunk's writes and reads in one list, sorted by slot; within a slot by token, a token's writes
// before its reads. The events of a slot are a group; those without one come last, each alone:
// whose slot is outside its sequence, and then padding.
#pragma once
#include <cmath>

#include "kernels/common/records/records.h"

namespace sdm {

inline constexpr int32_t kNoSlot = -1;  // in a list of slots, and a row of zeros

// 16 bytes. The word has the bits of a record's (records.h), and one more.
struct alignas(16) ChunkEvent {
  double log;    // the slot's log decays from the chunk's start through the event's token
  float weight;  // k or q
  uint32_t word;
};
static_assert(sizeof(ChunkEvent) == 16);

inline constexpr uint32_t kEventRead = 1u << 29;

SDM_HD bool event_read(uint32_t word) { return (word & kEventRead) != 0; }

// Differences of log sums are taken in float64: their error is a relative error of the decay. Many
// are zero, whose exponential is exactly 1 (equal infinities differ by NaN).
SDM_HD double decay(double later, double earlier) {
  const double between = later - earlier;
  return between == 0.0 ? 1.0 : ::exp(between);
}

}  // namespace sdm
