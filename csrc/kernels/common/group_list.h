// The list that a warp makes of the groups it owns, in shared memory: an entry for every position
// of its tile.
#pragma once
#include "kernels/common/ordered_math.h"

namespace sdm {

// A group by its FIRST record. Two 16-byte reads.
struct alignas(16) GroupHead {
  int32_t row;       // absolute bank row; -1: a padding record, which has no rows
  int32_t snap_row;  // counted from the chunk's or the block's first snapshot row
  uint32_t word;
  int32_t position;  // in the chunk
  float scale;
  float decay;
  int32_t unused[2];
};
static_assert(sizeof(GroupHead) == 32);

}  // namespace sdm
