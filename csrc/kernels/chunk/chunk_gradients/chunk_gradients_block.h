// chunk_gradients' blocks, as its kernels and its host geometry both need them.
#pragma once
#include "kernels/common/records/chunk_shape.h"

namespace sdm {

inline constexpr int32_t kWarpLanes = 32;

// Where several blocks share a chunk's positions, or its tokens.
inline constexpr int32_t kGradientThreads = 128;
inline constexpr int32_t kGradientWarps = kGradientThreads / kWarpLanes;

// Where a block takes a whole chunk: the most threads, and the blocks on an SM that registers leave
// room for.
inline constexpr int32_t kWholeThreads = 512;
inline constexpr int32_t kWholeBlocks = 3;

// Tokens' blocks of a chunk, a thread each.
SDM_HD constexpr int32_t token_blocks(int32_t chunk_size) {
  return (chunk_size + kGradientThreads - 1) / kGradientThreads;
}

// Side by side positions of each of `warps` that share `events`: whole rows of lanes. A warp lists
// some of them in shared memory, by their offsets of two bytes.
SDM_HD constexpr int32_t warp_span(int32_t events, int32_t warps) {
  const int32_t rows = (events + kWarpLanes - 1) / kWarpLanes;
  return (rows + warps - 1) / warps * kWarpLanes;
}
SDM_HD constexpr int32_t list_bytes(int32_t events, int32_t warps) {
  return warps * warp_span(events, warps) * static_cast<int32_t>(sizeof(uint16_t));
}

// A whole chunk's entries in shared memory, in this order; the warps' lists follow. Offsets in
// bytes.
struct StagedLayout {
  SDM_HD explicit StagedLayout(const ChunkShape& shape)
      : keys(8 * shape.chunk_size * (shape.num_writes + 1)),
        queries(keys + 4 * shape.writes()),
        lists(queries + 4 * shape.reads()) {}

  // At 0 float64 [C, W+1]: a gate's; a token's last one is never used, and lets 32 tokens that walk
  // over theirs side by side meet in no bank.
  int32_t keys;     // float32 [C, W]
  int32_t queries;  // float32 [C, R]
  int32_t lists;
};

}  // namespace sdm
