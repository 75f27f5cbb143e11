// event_order's block, as its kernel and its host geometry both need it: a block sorts a chunk.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

inline constexpr int32_t kOrderThreads = 1024;  // the largest block
inline constexpr int32_t kOrderBlocks = 2;      // such blocks on an SM: registers allow them
inline constexpr int32_t kFewestDigitBits = 6;  // two digits a lane
inline constexpr int32_t kMostDigitBits = 8;

// A block's shared memory: the digits' totals, a counter for every warp and digit, and room for two
// lists of words, where they lie there. Offsets in bytes.
struct OrderLayout {
  SDM_HD constexpr OrderLayout(int32_t threads, int32_t digit_bits, int32_t events,
                               int32_t word_bytes)
      : counters(4 << digit_bits),
        from(counters + threads / 32 * (4 << digit_bits)),
        to(from + (events * word_bytes + 15) / 16 * 16),
        bytes(to + (to - from)) {}

  int32_t counters, from, to, bytes;
};

}  // namespace sdm
