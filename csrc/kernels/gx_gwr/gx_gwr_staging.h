// gx_gwr's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/ordered_math.h"
#include "kernels/common/row_bits.h"

namespace sdm {

struct GwrShape {
  int32_t threads;     // of a block, at most
  int32_t batch;       // rows added together; a power of two
  int32_t ring_bytes;  // of rows in flight, a warp

  // Rows that the ring holds: whole batches.
  SDM_HD constexpr int32_t ring_rows(RowType grad) const {
    return ring_bytes / row_bytes(grad) / batch * batch;
  }
  // A slice of a row in the ring.
  static SDM_HD constexpr int32_t row_bytes(RowType grad) {
    return static_cast<int32_t>(kLanes * piece_bytes(grad, kLaneColumns));
  }
  // A token's writes are staged as two arrays, bank rows and weights, padded to whole batches.
  SDM_HD constexpr int32_t staged_writes(int32_t num_writes) const {
    return (num_writes + batch - 1) / batch * batch;
  }
  SDM_HD constexpr int32_t warp_bytes(int32_t num_writes) const {
    return ring_bytes + staged_writes(num_writes) * 2 * static_cast<int32_t>(sizeof(float));
  }
};

inline constexpr GwrShape kGwrShape{128, 8, 8 * 1024};

}  // namespace sdm
