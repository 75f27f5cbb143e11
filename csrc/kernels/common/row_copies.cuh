// Slices of rows on their way into a warp's ring in shared memory.
#pragma once
#include "kernels/common/gather_shape.h"
#include "kernels/common/team.cuh"

namespace sdm {

// Of this thread's token, blockIdx.x * blockDim.z + threadIdx.z in 64 bits, the number in its
// chunk; without a division of 64 bits.
__device__ __forceinline__ int32_t token_in_chunk(int32_t chunk_size) {
  const auto size = static_cast<uint32_t>(chunk_size);
  return static_cast<int32_t>((blockIdx.x % size * blockDim.z + threadIdx.z) % size);
}

// kCopyCols columns a thread: with 8, half a warp copies a row and a warp two, so that bf16 rows
// travel in 16-byte pieces too.
template <RowType kType, int kCopyCols, GatherShape kShape>
class RowCopies {
  static constexpr int kRowsAtOnce = kCopyCols / kLaneColumns;
  static constexpr int kCopiers = kLanes / kRowsAtOnce;
  static constexpr int kBatch = kShape.batch, kRowBytes = GatherShape::row_bytes(kType);
  using Raw = RawPiece<kType, kCopyCols>;

 public:
  __device__ __forceinline__ RowCopies(char* ring, const void* rows, RowType type, int32_t hd,
                                       const Team<kLaneColumns>& team)
      : ring_(ring + team.lane % kCopiers * sizeof(Raw)),
        first_(team.lane / kCopiers),
        rows_(rows, {type}, 0, hd, columns(team)) {}

  // Starts the copies of a batch of rows into the ring's place `slot` and the rows behind it. A row
  // of -1 becomes zeros.
  __device__ __forceinline__ void start(int32_t slot, const int32_t* batch) const {
#pragma unroll
    for (int32_t u = 0; u < kBatch; u += kRowsAtOnce) {
      auto* place = reinterpret_cast<Raw*>(ring_ + (slot + u + first_) * kRowBytes);
      const int32_t row = batch[u + first_];
      rows_.fetch_or_clear(place, row);
    }
    ptx::copy_commit();
  }

 private:
  static __device__ __forceinline__ Columns columns(const Team<kLaneColumns>& team) {
    const int32_t offset = team.lane % kCopiers * kCopyCols;
    const int32_t end = team.slice_end - team.slice_begin;
    return {team.slice_begin + offset, max(0, min(kCopyCols, end - offset))};
  }

  char* ring_;
  int32_t first_;  // of the rows copied at once
  ThreadRows<kType, kCopyCols> rows_;
};

}  // namespace sdm
