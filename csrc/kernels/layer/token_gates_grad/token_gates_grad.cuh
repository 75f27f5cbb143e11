// token_gates_grad on the device: a block is a group of a head's lanes, a thread a lane; a block
// takes its groups in turn. The blocks of a head, where it has several, are a cluster, whose first
// block gets all groups' parts. An ordinary launch: it waits for no grid.
#pragma once
#include "kernels/common/ptx/cluster.cuh"
#include "kernels/common/ptx/ptx.cuh"
#include "kernels/layer/token_gates_grad/token_gates_grad_math.h"

namespace sdm {

// The tree over a warp's lanes, neighbours first: every lane gets the sum.
__device__ __forceinline__ GateSums warp_sum(GateSums sums) {
  for (int32_t distance = 1; distance < kLanes; distance *= 2) {
    const GateSums other = {__shfl_xor_sync(~0u, sums.a_log, distance),
                            __shfl_xor_sync(~0u, sums.dt_bias, distance)};
    sums = plus(sums, other);
  }
  return sums;
}

// Over the block's lanes; of use to thread 0 alone.
__device__ __forceinline__ GateSums block_sum(GateSums sums, GateSums* warps) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  sums = warp_sum(sums);
  if (thread % kLanes == 0) warps[thread / kLanes] = sums;
  __syncthreads();
  static_assert(kGroupLanes == kLanes * kLanes);
  if (thread < kLanes) sums = warp_sum(warps[thread]);
  __syncthreads();
  return sums;
}

__device__ __forceinline__ void token_gates_grad_device(const TokenGatesGradParams& params) {
  // Whose: blocks side by side share a head.
  const auto heads = static_cast<uint32_t>(params.num_heads);
  const uint32_t blocks = gridDim.x / heads, rank = blockIdx.x % blocks;
  const auto head = static_cast<int32_t>(blockIdx.x / blocks);
  const int64_t tokens = int64_t{params.num_batches} * params.num_tokens;
  auto* parts = reinterpret_cast<GateSums*>(ptx::dynamic_shared());  // of the groups
  GateSums* warps = parts + kSumGroups;
  const HeadGate gate = head_gate(params, head);
  if (blocks > 1) cluster_arrive_relaxed();  // the first block's memory is there once it runs

  // The groups' tokens and parts.
  for (uint32_t group = rank; group < kSumGroups; group += blocks) {
    const int64_t start = int64_t{group} * kGroupLanes;
    GateSums sums;
    if (start < tokens) {
      for (int64_t flat = start + threadIdx.x; flat < tokens; flat += kSumLanes) {
        sums = add_token(params, static_cast<uint32_t>(flat), head, gate, sums);
      }
      sums = block_sum(sums, warps);
    }
    if (threadIdx.x == 0) parts[group] = sums;
  }

  // All parts to the head's first block, which alone goes on.
  if (blocks > 1) {
    cluster_wait();
    if (threadIdx.x == 0 && rank > 0) {
      for (uint32_t group = rank; group < kSumGroups; group += blocks) {
        cluster_store(&parts[group].a_log, 0, parts[group].a_log);
        cluster_store(&parts[group].dt_bias, 0, parts[group].dt_bias);
      }
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
  }
  if (rank > 0 || threadIdx.x > 0) return;
  GateSums groups[kSumGroups];
#pragma unroll
  for (int32_t group = 0; group < kSumGroups; ++group) groups[group] = parts[group];
  store_sums(params, head, gate, groups);
}

}  // namespace sdm
