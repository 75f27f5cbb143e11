// gx_gwr's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/team_layout.h"

namespace sdm {

inline constexpr int32_t kGwrThreads = 128;  // of a block, at most
inline constexpr int32_t kGwrPad = 16;       // staged writes per token are a multiple of this

// One write of a token, staged in shared memory.
struct alignas(8) GwrWrite {
  int32_t row;  // of the grad bank; -1: nothing to gather
  float weight;
};

SDM_HD int32_t gwr_staged_writes(int32_t num_writes) {
  return (num_writes + kGwrPad - 1) / kGwrPad * kGwrPad;
}

}  // namespace sdm
