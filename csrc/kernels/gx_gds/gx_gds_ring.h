// gx_gds's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/group_list.h"
#include "kernels/common/row_bits.h"

namespace sdm {

inline constexpr int32_t kGdsThreads = 256;
inline constexpr int32_t kGdsWarps = kGdsThreads / kLanes;
inline constexpr int32_t kGdsDepth = 4;  // groups of a team in flight; a power of two

// Bytes of the block's ring: every thread's own pieces of a grad row and a bank row, kGdsDepth
// times. Behind it lie the lists.
SDM_HD constexpr uint32_t gds_grad_bytes(RowType grad, int columns) {
  return kGdsDepth * kGdsThreads * piece_bytes(grad, columns);
}
SDM_HD constexpr uint32_t gds_bank_bytes(RowType bank, int columns) {
  return kGdsDepth * kGdsThreads * piece_bytes(bank, columns);
}
SDM_HD constexpr uint32_t gds_shared_bytes(RowType bank, RowType grad, int columns) {
  return gds_grad_bytes(grad, columns) + gds_bank_bytes(bank, columns) +
         group_list_bytes(kGdsWarps);
}

}  // namespace sdm
