// What a block keeps of its long groups in shared memory, as the kernels and their host geometries
// both need it.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

// Entries beyond the tile from which on a group is long: where a warp's rows are of one slice, and
// where they are of two and the tile's other groups take longer.
inline constexpr int32_t kShortTail = 4;
inline constexpr int32_t kPairTail = 16;

inline constexpr int32_t kLongGroupFloats = 512;  // of sums: 4 groups of one slice, 2 of two

template <int kWarps>
struct alignas(16) LongGroupMemory {
  float sums[kLongGroupFloats];
  float decays[4];        // of the sums' LAST entries
  int32_t first[kWarps];  // position of a warp's long group's FIRST; -1: it has none
};

SDM_HD constexpr int32_t long_group_bytes(int32_t warps) {
  return static_cast<int32_t>((kLongGroupFloats + 4) * sizeof(float)) + (warps + 3) / 4 * 16;
}
static_assert(sizeof(LongGroupMemory<8>) == long_group_bytes(8));

}  // namespace sdm
