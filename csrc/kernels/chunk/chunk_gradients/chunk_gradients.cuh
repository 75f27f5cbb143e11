// chunk_gradients on the device: a block takes a chunk through all passes, or (where chunks are few
// or large) blocks share it out and a pass is a launch. Ordinary launches after the chain: they
// wait for no grid.
#pragma once
#include "kernels/chunk/chunk_gradients/chunk_gradients_block.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_entries.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_math.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_runs.cuh"
#include "kernels/chunk/chunk_gradients/chunk_gradients_staged.cuh"

namespace sdm {

// visit(gradients, runs) by the warps that share a chunk.
template <typename Visit>
__device__ __forceinline__ void for_shared_chunk(const ChunkGradientsParams& params,
                                                 const Visit& visit) {
  const auto blocks = static_cast<int32_t>(gridDim.x) / params.num_chunks;  // side by side
  const auto chunk = static_cast<int32_t>(blockIdx.x) / blocks;
  const int32_t block = static_cast<int32_t>(blockIdx.x) - chunk * blocks;
  const int32_t warp = block * kGradientWarps + static_cast<int32_t>(threadIdx.x) / kWarpLanes;
  const TensorEntries entries(params, chunk);
  const ChunkGradients<TensorEntries> gradients(params, chunk, entries);
  visit(gradients, WarpRuns(gradients.events(), shape_of(params).events(), warp,
                            blocks * kGradientWarps, ptx::dynamic_shared()));
}

__device__ __forceinline__ void chunk_gradients_runs_device(const ChunkGradientsParams& params) {
  for_shared_chunk(params, [](const auto& gradients, WarpRuns runs) {
    runs.find([&](const ChunkEvent& event) { gradients.alone(event); });
    runs.for_reads([&](int32_t position) { gradients.reads(position); });
    runs.for_writes([&](int32_t position) { gradients.writes(position); });
    runs.for_last([&](int32_t position) { return gradients.none(position); });
  });
}

__device__ __forceinline__ void chunk_gradients_gates_device(const ChunkGradientsParams& params) {
  for_shared_chunk(params, [](const auto& gradients, WarpRuns runs) {
    runs.find([](const ChunkEvent&) {});
    runs.for_writes([&](int32_t position) { gradients.gates(position); });
  });
}

__device__ __forceinline__ void chunk_gradients_tokens_device(const ChunkGradientsParams& params) {
  const int32_t blocks = token_blocks(params.chunk_size);
  const auto chunk = static_cast<int32_t>(blockIdx.x) / blocks;
  const int32_t block = static_cast<int32_t>(blockIdx.x) - chunk * blocks;
  const int32_t token = block * kGradientThreads + static_cast<int32_t>(threadIdx.x);
  if (token >= chunk_tokens(shape_of(params), chunk).count(params.chunk_size)) return;
  TensorEntries(params, chunk).put_sum(token);
}

// By all threads of a block that has the whole chunk, which it looks up again: what is at work
// needs its registers.
__device__ __forceinline__ void clear_without_slot(const ChunkGradientsParams& params) {
  const auto chunk = static_cast<int32_t>(ptx::opaque(blockIdx.x));
  const StagedEntries entries(params, chunk);
  const ChunkGradients<StagedEntries> gradients(params, chunk, entries);
  auto at = shape_of(params).events() - 1 - static_cast<int32_t>(threadIdx.x);
#pragma unroll 1
  while (at >= 0 && gradients.none(at)) at -= static_cast<int32_t>(blockDim.x);
}

__device__ __forceinline__ void chunk_gradients_whole_device(const ChunkGradientsParams& params) {
  const auto chunk = static_cast<int32_t>(blockIdx.x);
  const ChunkShape shape = shape_of(params);
  const StagedEntries entries(params, chunk);
  const ChunkGradients<StagedEntries> gradients(params, chunk, entries);
  WarpRuns runs(gradients.events(), shape.events(), static_cast<int32_t>(threadIdx.x) / kWarpLanes,
                static_cast<int32_t>(blockDim.x) / kWarpLanes,
                ptx::dynamic_shared() + StagedLayout(shape).lists);
  entries.load();
  __syncthreads();

  // Every event's own terms.
  runs.find([&](const ChunkEvent& event) { gradients.alone(event); });
  runs.for_reads([&](int32_t position) { gradients.reads(position); });
  runs.for_writes([&](int32_t position) { gradients.writes(position); });
  __syncthreads();

  // Every write's gate.
  runs.for_writes([&](int32_t position) { gradients.gates(position); });
  clear_without_slot(params);
  __syncthreads();

  // Every token's sum, with all that is stored.
  entries.store();
}

}  // namespace sdm
