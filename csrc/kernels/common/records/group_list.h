// The list that a warp makes of the groups it owns, in shared memory: an entry for every position
// of its tile.
#pragma once
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/records/records.h"

namespace sdm {

// A group by its FIRST: one 16-byte read.
struct alignas(16) GroupHead {
  int32_t row;    // absolute bank row; of a padding entry any row, which is read and never written
  uint32_t word;  // the entry's; where it counts its distance to itself stands its lane
  float scale;
  float decay;
};
static_assert(sizeof(GroupHead) == 16);

// The position of a FIRST in its block of 32, in place of its distance, which is 0.
SDM_HD uint32_t word_with_lane(uint32_t word, int32_t lane) {
  return (word & ~(kRecordDistanceBits << kRecordDistanceAt)) | static_cast<uint32_t>(lane)
                                                                    << kRecordDistanceAt;
}

}  // namespace sdm
