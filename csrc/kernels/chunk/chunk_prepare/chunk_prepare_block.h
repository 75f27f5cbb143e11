// How chunk_prepare's blocks share a chunk, as its kernel and its host geometry both need it.
#pragma once
#include "kernels/chunk/chunk_prepare/chunk_prepare_math.h"

namespace sdm {

inline constexpr int32_t kPrepareThreads = 512;   // the largest block
inline constexpr int32_t kPreparePart = 1 << 13;  // sorted positions of a block, at most

// What the block's warps counted: in their own parts, and in front of the block's.
struct WarpCounts {
  GroupCounts own, before;
};
inline constexpr int32_t kPrepareShared = kPrepareThreads / 32 * sizeof(WarpCounts);

// The sorted positions [begin, end) of part `index` of `count`, cut from [begin, end) in whole
// warps.
struct PositionRange {
  int32_t begin, end;

  SDM_HD PositionRange part(int32_t index, int32_t count) const {
    const int32_t length = ((end - begin + count - 1) / count + 31) / 32 * 32;
    const int32_t first = begin + index * length, last = first + length;
    return {first < end ? first : end, last < end ? last : end};
  }
};

}  // namespace sdm
