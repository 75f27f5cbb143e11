// chunk_gradients' blocks, as its kernels and its host geometry both need them.
#pragma once
#include "kernels/common/host_device.h"

namespace sdm {

inline constexpr int32_t kGradientThreads = 128;

// Blocks for `count` positions or tokens of a chunk, a thread each.
SDM_HD constexpr int32_t gradient_blocks(int32_t count) {
  return (count + kGradientThreads - 1) / kGradientThreads;
}

}  // namespace sdm
