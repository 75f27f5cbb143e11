// chunk_gradients on the device: a block is a chunk, its threads take the events in turn.
// An ordinary launch after the chain: it waits for no grid.
#pragma once
#include "kernels/chunk_gradients/chunk_gradients_block.h"
#include "kernels/chunk_gradients/chunk_gradients_math.h"

namespace sdm {

__device__ __forceinline__ void chunk_gradients_device(const ChunkGradientsParams& params) {
  const ChunkGradients chunk(params, blockIdx.x);
  const auto threads = static_cast<int32_t>(blockDim.x);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < chunk.size(); i += threads) chunk.event(i);
  __syncthreads();
  for (int32_t i = thread; i < chunk.size(); i += threads) chunk.gate(i);
  if (params.gates == nullptr) return;
  __syncthreads();
  for (int32_t t = thread; t < chunk.valid_tokens(); t += threads) chunk.token_gate(t);
}

}  // namespace sdm
