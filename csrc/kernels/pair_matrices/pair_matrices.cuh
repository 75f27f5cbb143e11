// pair_matrices on the device: a thread owns a row of A (blockIdx.y = 0) or of QK, in shared
// memory. An ordinary launch before the chain: it waits for no grid.
#pragma once
#include "kernels/common/ptx.cuh"
#include "kernels/pair_matrices/pair_matrices_math.h"
#include "kernels/pair_matrices/pair_matrices_tile.h"

namespace sdm {

__device__ __forceinline__ void pair_matrices_device(const PairMatricesParams& params) {
  auto* tile = reinterpret_cast<float*>(ptx::dynamic_shared());
  const auto rows = static_cast<int32_t>(blockDim.x);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const bool of_reads = blockIdx.y == 1;
  const int64_t total = int64_t{params.num_chunks} * params.chunk_size;
  const int64_t first = int64_t{blockIdx.x} * rows;
  const int64_t left = total - first;
  const int32_t cells = static_cast<int32_t>(left < rows ? left : rows) * params.chunk_size;

  // Clear, add, store.
  for (int32_t i = thread; i < cells; i += rows) tile[i] = 0.0f;
  __syncthreads();
  if (thread < left) {
    const int64_t chunk = (first + thread) / params.chunk_size;
    const auto token = static_cast<int32_t>(first + thread - chunk * params.chunk_size);
    add_pair_row(params, chunk, token, of_reads, tile + thread * params.chunk_size);
  }
  __syncthreads();
  float* out = (of_reads ? params.qk : params.a) + first * params.chunk_size;
  for (int32_t i = thread; i < cells; i += rows) out[i] = tile[i];
}

}  // namespace sdm
