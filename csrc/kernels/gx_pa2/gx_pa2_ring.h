// gx_pa2's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/walk_shape.h"

namespace sdm {

inline constexpr WalkShape kPa2Shape{256, 4};

// In this order: the rings of grad and snapshot rows, the warps' lists, the snapshots' scales.
SDM_HD constexpr uint32_t pa2_shared_bytes(WalkShape shape, RowType snap, RowType grad,
                                           int columns) {
  const uint32_t scales = is_quantized(snap) ? shape.ring_bytes(RowType::kFloat32, 1) : 0;
  return shape.ring_bytes(grad, columns) + shape.ring_bytes(snap, columns) + shape.list_bytes() +
         scales;
}

}  // namespace sdm
