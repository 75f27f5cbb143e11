// Which threads hold which columns. A team is the threads that hold one slice of a row, kCols
// columns each: a warp (4 columns a thread) or half a warp (8). A warp's two half-warp teams work
// on two slices of one group of entries if the slices come in pairs, else on two groups.
//
// Both the kernels and their host geometry use these.
#pragma once
#include "kernels/common/math/ordered_math.h"

namespace sdm {

struct TeamLayout {
  int32_t slices_per_warp;   // 1 or 2
  int32_t groups_per_round;  // of entries, at once: 2 or 1, so that all of the warp's teams work
  int32_t slice_groups;      // warps that together hold a row
};

SDM_HD TeamLayout team_layout(int32_t hd, int32_t columns_per_thread) {
  const int32_t slices = num_slices(hd);
  if (columns_per_thread == kLaneColumns) return {1, 1, slices};
  if (slices % 2 == 0) return {2, 1, slices / 2};
  return {1, 2, slices};
}

// Record positions per warp, a power of two up to 32, so that `warps` warps cover `positions`.
SDM_HD int32_t tile_positions(int32_t positions, int32_t warps) {
  int32_t tile = 1;
  while (tile < kLanes && tile * warps < positions) tile *= 2;
  return tile;
}

}  // namespace sdm
