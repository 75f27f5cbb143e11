// pair_matrices on the device: a thread owns a row of A (blockIdx.y = 0) or of QK, in shared
// memory. An ordinary launch before the chain: it waits for no grid.
#pragma once
#include "kernels/chunk/pair_matrices/pair_matrices_math.h"
#include "kernels/chunk/pair_matrices/pair_matrices_tile.h"
#include "kernels/common/ptx/ptx.cuh"

namespace sdm {

// The rows of one warp, a lane each.
class PairRows {
 public:
  __device__ PairRows(const PairMatricesParams& params, int64_t first, int32_t rows, int32_t lane)
      : per_token_(params.num_writes + params.num_reads),
        size_(params.chunk_size * per_token_),
        rows_(rows),
        lane_(lane),
        places_(params.places + first * per_token_),
        events_(params.events + (first + lane) / params.chunk_size * size_) {}

  // Adds up this lane's row from its entries of columns [begin, end), in order.
  __device__ void add(int32_t begin, int32_t end, float* row) const {
    for (int32_t column = begin; column < end; column += 32) {
      uint32_t columns = paired_columns(column, end);
      if (columns == 0) continue;
      PairedEntry next = take(column, columns);
      for (bool more = true; more;) {
        const PairedEntry entry = next;
        more = columns != 0;
        if (more) next = take(column, columns);
        add_pairs(events_, entry, row);
      }
    }
  }

 private:
  // Which of 32 columns have partners in this lane's row. Most have none: lanes that looked through
  // their rows one by one would wait for each other at every column.
  __device__ uint32_t paired_columns(int32_t column, int32_t end) const {
    uint32_t own = 0;
#pragma unroll 8
    for (int32_t r = 0; r < 32; ++r) {
      bool paired = false;
      if (r < rows_ && column + lane_ < end) {
        paired = places_[int64_t{r} * per_token_ + column + lane_] >= 0;
      }
      const uint32_t found = __ballot_sync(~0u, paired);
      if (r == lane_) own = found;
    }
    return own;
  }

  __device__ PairedEntry take(int32_t column, uint32_t& columns) const {
    column += __ffs(static_cast<int>(columns)) - 1;
    columns &= columns - 1;
    return paired_entry(events_, size_, places_[int64_t{lane_} * per_token_ + column]);
  }

  const int32_t per_token_, size_;
  const int32_t rows_, lane_;
  const int32_t* places_;     // of the warp's rows
  const ChunkEvent* events_;  // of the lane's chunk
};

__device__ __forceinline__ void store_pair_rows(const PairMatricesParams& params, bool of_reads,
                                                int64_t first, int32_t rows, const float* tile) {
  const auto warps = static_cast<int32_t>(blockDim.x) / 32;
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t row = static_cast<int32_t>(threadIdx.x) / 32; row < rows; row += warps) {
    const int64_t at = (first + row) * params.chunk_size;
    const float* from = tile + row * params.chunk_size;
    const float beta = of_reads ? 0.0f : params.beta_rows[first + row];
    for (int32_t t = lane; t < params.chunk_size; t += 32) {
      if (of_reads) {
        params.qk[at + t] = from[t];
        continue;
      }
      if (params.a != nullptr) params.a[at + t] = from[t];
      params.system[at + t] = times(beta, from[t]);
    }
  }
}

__device__ __forceinline__ void pair_matrices_device(const PairMatricesParams& params) {
  auto* tile = reinterpret_cast<float*>(ptx::dynamic_shared());
  const auto threads = static_cast<int32_t>(blockDim.x);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const bool of_reads = blockIdx.y == 1;
  const int64_t first = int64_t{blockIdx.x} * threads;
  const int64_t left = int64_t{params.num_chunks} * params.chunk_size - first;
  const auto rows = static_cast<int32_t>(left < threads ? left : threads);

  // Clear, add, store.
  for (int32_t i = thread; i < rows * params.chunk_size; i += threads) tile[i] = 0.0f;
  __syncthreads();
  const int32_t lane = thread % 32, before = thread - lane;
  const PairRows mine(params, first + before, rows - before, lane);
  mine.add(of_reads ? params.num_writes : 0, params.num_writes + (of_reads ? params.num_reads : 0),
           tile + thread * params.chunk_size);
  __syncthreads();
  store_pair_rows(params, of_reads, first, rows, tile);
}

}  // namespace sdm
