// Slices of rows on their way into a warp's ring in shared memory.
#pragma once
#include "kernels/common/rows/gather_shape.h"
#include "kernels/common/rows/team.cuh"

namespace sdm {

// Of this thread's token, blockIdx.x * blockDim.z + threadIdx.z, the number in its chunk. A
// remainder of 64 bits would take longer than two of 32, and one does where a step's tokens have 32
// bits.
__device__ __forceinline__ int32_t token_in_chunk(int32_t chunk_size, int64_t step_tokens) {
  const auto size = static_cast<uint32_t>(chunk_size);
  uint32_t first = blockIdx.x;
  if (step_tokens > UINT32_MAX) first %= size;
  return static_cast<int32_t>((first * blockDim.z + threadIdx.z) % size);
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
        rows_(first_columns(rows, team), {type}, 0, hd, columns(team)) {}

  // Starts the copies of a batch of rows into the ring, from its row `first` on. A row of -1
  // becomes zeros.
  __device__ __forceinline__ void start(int32_t first, const int32_t* batch) const {
#pragma unroll
    for (int32_t u = 0; u < kBatch; u += kRowsAtOnce) {
      auto* to = reinterpret_cast<Raw*>(ring_ + (first + u + first_) * kRowBytes);
      const int32_t row = batch[u + first_];
      rows_.fetch_or_clear(to, row);
    }
    ptx::copy_commit();
  }

 private:
  static __device__ __forceinline__ int32_t first_column(const Team<kLaneColumns>& team) {
    return team.slice_begin + team.lane % kCopiers * kCopyCols;
  }
  // Rows that begin with this thread's columns: a thread copies many rows and has registers to
  // spare, so that an address is one instruction.
  static __device__ __forceinline__ const void* first_columns(const void* rows,
                                                              const Team<kLaneColumns>& team) {
    if constexpr (kType == kAnyRow) {
      return rows;
    } else {
      return static_cast<const char*>(rows) + int64_t{first_column(team)} * element_bits(kType) / 8;
    }
  }
  static __device__ __forceinline__ Columns columns(const Team<kLaneColumns>& team) {
    const int32_t column = first_column(team);
    const int32_t count = max(0, min(kCopyCols, team.slice_end - column));
    return {kType == kAnyRow ? column : 0, count};
  }

  char* ring_;
  int32_t first_;  // of the rows copied at once
  ThreadRows<kType, kCopyCols> rows_;
};

}  // namespace sdm
