// chunk_prepare on the device: a block is a part of a chunk (blockIdx.y, the last one first), a
// warp a part of the block's. The block counts what precedes its warps' parts, for which it reads
// the chunk up to there; then every warp goes its own way. An ordinary launch before the chain: it
// waits for no grid.
#pragma once
#include "kernels/chunk/chunk_prepare/warp_prepare.cuh"
#include "kernels/common/ptx/ptx.cuh"

namespace sdm {

__device__ __forceinline__ void chunk_prepare_device(const ChunkPrepareParams& params) {
  auto* counted = reinterpret_cast<WarpCounts*>(ptx::dynamic_shared());
  const auto threads = static_cast<int32_t>(blockDim.x), warps = threads / 32;
  const auto thread = static_cast<int32_t>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const auto parts = static_cast<int32_t>(gridDim.y);
  const int32_t part = parts - 1 - static_cast<int32_t>(blockIdx.y);
  const ChunkPrepare chunk(params, blockIdx.x);
  const PositionRange all = PositionRange{0, chunk.inputs().size()}.part(part, parts);
  const PositionRange own = all.part(warp, warps);

  // Count.
  if (chunk.has_records()) {
    const bool groups = chunk.counts_groups();
    const PositionRange share = PositionRange{0, all.begin}.part(warp, warps);
    const GroupCounts before = count_groups(chunk.inputs(), share, groups, lane);
    const GroupCounts mine = count_groups(chunk.inputs(), own, groups, lane);
    if (lane == 0) counted[warp] = {mine, before};
  }
  if (part == 0) {
    for (int32_t t = thread; t < params.chunk_size; t += threads) chunk.beta_row(t);
  }
  __syncthreads();

  // Prepare.
  GroupCounts before{0, 0};
  for (int32_t w = 0; w < warps && chunk.has_records(); ++w) {
    const WarpCounts& of = counted[w];
    before.writes += of.before.writes + (w < warp ? of.own.writes : 0);
    before.groups += of.before.groups + (w < warp ? of.own.groups : 0);
  }
  WarpPrepare(chunk, lane).run(own, before);
}

}  // namespace sdm
