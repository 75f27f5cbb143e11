// fx_write's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/records/walk_shape.h"

namespace sdm {

// One ring where gx_pa2 has three, so twice as deep.
inline constexpr WalkShape kWriteShape{256, 4, 4};

// The ring of bank rows: the warps' lists are behind it.
SDM_HD constexpr uint32_t write_ring_bytes(WalkShape shape, RowType bank, int columns) {
  return shape.ring_bytes(bank, columns);
}

}  // namespace sdm
