// gx_gds's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/walk_shape.h"

namespace sdm {

inline constexpr WalkShape kGdsShape{256, 4};

// In this order: the rings of grad and bank rows, the warps' lists.
SDM_HD constexpr uint32_t gds_shared_bytes(WalkShape shape, RowType bank, RowType grad,
                                           int columns) {
  return shape.ring_bytes(grad, columns) + shape.ring_bytes(bank, columns) + shape.list_bytes();
}

}  // namespace sdm
