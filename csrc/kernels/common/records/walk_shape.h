// The block of a kernel that walks sorted entries: its threads, and how far rows are fetched ahead.
#pragma once
#include "kernels/common/records/group_list.h"
#include "kernels/common/records/long_group_shape.h"
#include "kernels/common/rows/row_bits.h"

namespace sdm {

struct WalkShape {
  int32_t threads;
  int32_t depth;   // groups of a team in flight; a power of two
  int32_t blocks;  // that an SM must have registers for: the kernel's own, and the next one's

  SDM_HD constexpr int32_t warps() const { return threads / kLanes; }
  // Bytes of one kind of row's ring: every thread's own piece, `depth` times.
  SDM_HD constexpr uint32_t ring_bytes(RowType type, int columns) const {
    return static_cast<uint32_t>(threads * depth) * piece_bytes(type, columns);
  }
  // What follows the rings: the block's long groups, and the warps' lists of groups for tiles of so
  // many positions.
  SDM_HD constexpr uint32_t long_bytes() const {
    return static_cast<uint32_t>(long_group_bytes(warps()));
  }
  SDM_HD constexpr uint32_t list_bytes(int32_t tile) const {
    return long_bytes() + static_cast<uint32_t>(warps() * tile) * uint32_t{sizeof(GroupHead)};
  }
};

}  // namespace sdm
