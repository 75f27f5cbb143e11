// step_lists on the device: a block is a chunk, a thread walks a group from its first event on.
// An ordinary launch before the step loop: it waits for no grid.
#pragma once
#include "kernels/common/chunk_groups.cuh"
#include "kernels/step_lists/step_lists_block.h"
#include "kernels/step_lists/step_lists_math.h"

namespace sdm {

__device__ __forceinline__ void step_lists_device(const StepListsParams& params) {
  const StepLists chunk(params, blockIdx.x);
  const auto threads = static_cast<int32_t>(blockDim.x);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t t = thread; t < chunk.tokens(); t += threads) chunk.token(t);
  const GroupStart end =
      for_each_group_in_block(chunk, [&](const GroupStart& start) { chunk.group(start); });
  const int32_t used = end.ordinal;
  if (thread == 0) chunk.count(used);
  for (int32_t i = used + thread; i < chunk.writes(); i += threads) chunk.unused_group(i, used);
  for (int32_t i = chunk.valid_writes() + used + thread; i < 2 * chunk.writes(); i += threads) {
    chunk.unused_place(i);
  }
}

}  // namespace sdm
