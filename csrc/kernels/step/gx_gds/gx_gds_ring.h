// gx_gds's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/records/walk_shape.h"

namespace sdm {

inline constexpr WalkShape kGdsShape{256, 2, 4};

// The rings of grad and bank rows: in this order, the warps' lists behind them.
SDM_HD constexpr uint32_t gds_ring_bytes(WalkShape shape, RowType bank, RowType grad, int columns) {
  return shape.ring_bytes(grad, columns) + shape.ring_bytes(bank, columns);
}

}  // namespace sdm
