// token_gates' block, as its kernel and its host geometry both need it: some tokens, and of each
// the heads by turns.
#pragma once
#include <cstdint>

#include "kernels/common/math/host_device.h"

namespace sdm {

inline constexpr int32_t kGateThreads = 256;

// Tokens of a block: 32, so that a warp writes a head's tokens side by side, but no more than there
// are, rounded up to a power of two: in decoding, heads share the threads.
SDM_HD int32_t gate_tile(int64_t tokens) {
  int32_t tile = 1;
  while (tile < 32 && tile < tokens) tile *= 2;
  return tile;
}

}  // namespace sdm
