// gx_pa2's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/group_list.h"
#include "kernels/common/row_bits.h"

namespace sdm {

inline constexpr int32_t kPa2Threads = 256;
inline constexpr int32_t kPa2Warps = kPa2Threads / kLanes;
inline constexpr int32_t kPa2Depth = 4;  // groups of a team in flight; a power of two

// Bytes of the block's ring: every thread's own pieces of a grad row and a snapshot row, kPa2Depth
// times, and the snapshot row's scale if it is quantized. Between pieces and scales lie the lists.
SDM_HD constexpr uint32_t pa2_grad_bytes(RowType grad, int columns) {
  return kPa2Depth * kPa2Threads * piece_bytes(grad, columns);
}
SDM_HD constexpr uint32_t pa2_snap_bytes(RowType snap, int columns) {
  return kPa2Depth * kPa2Threads * piece_bytes(snap, columns);
}
SDM_HD constexpr uint32_t pa2_shared_bytes(RowType snap, RowType grad, int columns) {
  return pa2_grad_bytes(grad, columns) + pa2_snap_bytes(snap, columns) +
         group_list_bytes(kPa2Warps) +
         (is_quantized(snap) ? kPa2Depth * kPa2Threads * uint32_t{sizeof(float)} : 0);
}

}  // namespace sdm
