// The groups of a chunk's sorted events, a thread for each: the block counts what precedes them.
#pragma once
#include "kernels/common/chunk_groups.h"
#include "kernels/common/ptx.cuh"

namespace sdm {

// As for_each_group, by all threads of a block of whole warps; `visit` runs on one thread.
template <typename List, typename Visit>
__device__ __forceinline__ GroupStart for_each_group_in_block(const List& list,
                                                              const Visit& visit) {
  auto* warps = reinterpret_cast<WarpCounts*>(ptx::dynamic_shared());
  const auto threads = static_cast<int32_t>(blockDim.x);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const uint32_t below = (1u << (thread % 32)) - 1u;
  GroupStart tile{0, 0, 0};
  for (; tile.position < list.size(); tile.position += threads) {
    // What every position is.
    const int32_t position = tile.position + thread;
    EventKind kind{false, false, false};
    if (position < list.size()) kind = list.kind(position);
    const uint32_t writes = __ballot_sync(~0u, kind.write);
    const uint32_t opens = __ballot_sync(~0u, kind.opens_writes);
    if (thread % 32 == 0) warps[thread / 32] = {__popc(writes), __popc(opens)};
    __syncthreads();

    // What precedes it, in its warp and in the warps before.
    GroupStart start{position, tile.writes_before + __popc(writes & below),
                     tile.ordinal + __popc(opens & below)};
    for (int32_t warp = 0; warp < threads / 32; ++warp) {
      const WarpCounts counts = warps[warp];
      if (warp < thread / 32) {
        start.writes_before += counts.writes;
        start.ordinal += counts.opens;
      }
      tile.writes_before += counts.writes;
      tile.ordinal += counts.opens;
    }
    if (kind.first) visit(start);
    __syncthreads();
  }
  tile.position = list.size();
  return tile;
}

}  // namespace sdm
