// Rows that a block of pair_matrices adds up in shared memory, a thread each.
#pragma once
#include <cstdint>

namespace sdm {

inline constexpr int32_t kPairThreads = 128;  // the largest block

// 32 KiB of them, in whole warps.
constexpr int32_t pair_rows(int32_t chunk_size) {
  const int32_t fitting = 8192 / chunk_size / 32 * 32;
  return fitting < kPairThreads ? fitting : kPairThreads;
}
static_assert(pair_rows(256) == 32 && pair_rows(64) == 128);

}  // namespace sdm
