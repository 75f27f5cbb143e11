// fx_write's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/walk_shape.h"

namespace sdm {

// One ring where gx_pa2 has two, so twice as deep for as many bytes in flight.
inline constexpr WalkShape kWriteShape{256, 8};

// In this order: the ring of bank rows, the warps' lists.
SDM_HD constexpr uint32_t write_shared_bytes(WalkShape shape, RowType bank, int columns) {
  return shape.ring_bytes(bank, columns) + shape.list_bytes();
}

}  // namespace sdm
