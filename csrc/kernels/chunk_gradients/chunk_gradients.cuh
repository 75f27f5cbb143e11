// chunk_gradients on the device, a launch a pass: a thread takes a position of a chunk's events, or
// a token. Ordinary launches after the chain: they wait for no grid.
#pragma once
#include "kernels/chunk_gradients/chunk_gradients_block.h"
#include "kernels/chunk_gradients/chunk_gradients_math.h"

namespace sdm {

// visit(chunk, i) by the thread of item i of a chunk, of `count` each.
template <typename Visit>
__device__ __forceinline__ void for_item_of_chunk(const ChunkGradientsParams& params, int32_t count,
                                                  const Visit& visit) {
  const int32_t blocks = gradient_blocks(count);  // of a chunk, side by side
  const auto block = static_cast<int32_t>(blockIdx.x) % blocks;
  const int32_t item = block * kGradientThreads + static_cast<int32_t>(threadIdx.x);
  if (item < count) visit(ChunkGradients(params, static_cast<int32_t>(blockIdx.x) / blocks), item);
}

__device__ __forceinline__ void chunk_gradients_runs_device(const ChunkGradientsParams& params) {
  for_item_of_chunk(params, shape_of(params).events(),
                    [](const ChunkGradients& chunk, int32_t i) { chunk.run(i); });
}

__device__ __forceinline__ void chunk_gradients_gates_device(const ChunkGradientsParams& params) {
  for_item_of_chunk(params, shape_of(params).events(),
                    [](const ChunkGradients& chunk, int32_t i) { chunk.gates(i); });
}

__device__ __forceinline__ void chunk_gradients_tokens_device(const ChunkGradientsParams& params) {
  for_item_of_chunk(params, params.chunk_size, [](const ChunkGradients& chunk, int32_t token) {
    if (token < chunk.valid_tokens()) chunk.token_gate(token);
  });
}

}  // namespace sdm
