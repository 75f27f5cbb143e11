// gx_pa2's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/records/walk_shape.h"

namespace sdm {

inline constexpr WalkShape kPa2Shape{256, 2, 4};

// The rings of grad and snapshot rows, of d_u's rows as the entries need them (f32), and of the
// snapshots' scales: in this order, the warps' lists behind them.
SDM_HD constexpr uint32_t pa2_ring_bytes(WalkShape shape, RowType snap, RowType grad, int columns) {
  const uint32_t scales = is_quantized(snap) ? shape.ring_bytes(RowType::kFloat32, 1) : 0;
  return shape.ring_bytes(grad, columns) + shape.ring_bytes(snap, columns) +
         shape.ring_bytes(RowType::kFloat32, columns) + scales;
}

}  // namespace sdm
