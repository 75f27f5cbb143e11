// The block and shared memory of a kernel that adds up rows in a token's order: a warp for a token
// and slice, rows fetched ahead through a ring. Its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/rows/row_bits.h"

namespace sdm {

struct GatherShape {
  int32_t threads;     // of a block, at most
  int32_t batch;       // rows added together; a power of two
  int32_t ring_bytes;  // of rows in flight, a warp

  // Rows that the ring holds: whole batches.
  SDM_HD constexpr int32_t ring_rows(RowType type) const {
    return ring_bytes / row_bytes(type) / batch * batch;
  }
  // A slice of a row in the ring.
  static SDM_HD constexpr int32_t row_bytes(RowType type) {
    return static_cast<int32_t>(kLanes * piece_bytes(type, kLaneColumns));
  }
  // A token's entries are staged as two arrays, bank rows and weights, padded to whole batches.
  SDM_HD constexpr int32_t staged_entries(int32_t entries) const {
    return (entries + batch - 1) / batch * batch;
  }
  SDM_HD constexpr int32_t warp_bytes(int32_t staged) const {
    return ring_bytes + staged * 2 * static_cast<int32_t>(sizeof(float));
  }
};

}  // namespace sdm
