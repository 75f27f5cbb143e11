// chunk_prepare on the device: a block is a chunk, a thread walks a group from its first event on.
// An ordinary launch before the chain: it waits for no grid.
#pragma once
#include "kernels/chunk_prepare/chunk_prepare_block.h"
#include "kernels/chunk_prepare/chunk_prepare_math.h"
#include "kernels/common/chunk_groups.cuh"

namespace sdm {

__device__ __forceinline__ void chunk_prepare_device(const ChunkPrepareParams& params) {
  const ChunkPrepare chunk(params, blockIdx.x);
  for (auto t = static_cast<int32_t>(threadIdx.x); t < params.chunk_size;
       t += static_cast<int32_t>(blockDim.x)) {
    chunk.beta_row(t);
  }
  for_each_group_in_block(chunk.inputs(), [&](const GroupStart& start) { chunk.group(start); });
}

}  // namespace sdm
