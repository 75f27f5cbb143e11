// What a block of bf16_linear knows before it starts: its tactic's sizes, its shared memory and its
// part of the work.
#pragma once
#include "kernels/common/ptx/cluster.cuh"
#include "kernels/common/ptx/mbarrier.cuh"
#include "kernels/linear/bf16_linear/bf16_linear_geometry.h"
#include "kernels/linear/bf16_linear/bf16_linear_params.h"

namespace sdm::bf16_linear_device {

// A tactic's sizes as compile-time constants.
template <int index>
struct Config {
  static constexpr Bf16LinearTactic kTactic = kBf16LinearTactics[index];
  static constexpr Bf16LinearSharedMap kMap = bf16_linear_shared_map(kTactic);
  static constexpr uint32_t kRows = kTactic.rows, kTokens = kTactic.tokens;
  static constexpr uint32_t kDepth = kTactic.depth;
  static constexpr uint32_t kStages = kTactic.stages, kTokenStages = kTactic.token_stages;
  static constexpr uint32_t kSharers = kTactic.sharers;
  static constexpr uint32_t kTokenSlice = bf16_linear_token_slice(kTactic);
  static constexpr uint32_t kPairs = kTokens / 2;  // of tokens
  static constexpr uint32_t kPairBytes = bf16_linear_pair_bytes(kTactic);
  static constexpr uint32_t kRowBlocks = kRows / kWgmmaRows;      // wgmma tiles of a block
  static constexpr uint32_t kColumns = kDepth / kSwizzleColumns;  // 64-column boxes of a stage
  static constexpr uint32_t kWarps = kBf16LinearMathThreads / 32;
  static constexpr uint32_t kWeightWarp = kWarps, kTokenWarp = kWarps + 1;
};

// The stage of a ring that a tile has: stages are used in turn, a barrier's phase flips every
// round.
template <uint32_t stages>
struct RingStage {
  uint32_t index, parity;
  __device__ explicit RingStage(int32_t tile)
      : index(static_cast<uint32_t>(tile) % stages),
        parity(static_cast<uint32_t>(tile) / stages & 1) {}
};

// Shared-memory addresses. Stage s of a ring is full when its bytes have arrived, empty when the
// math warps of all blocks that its tile is sent to have read it. Rings that go in step share their
// empty barriers.
template <typename C>
struct Shared {
  uint32_t base;
  using WeightStage = RingStage<C::kStages>;
  using TokenStage = RingStage<C::kTokenStages>;
  static constexpr bool kInStep = C::kStages == C::kTokenStages && C::kSharers == 1;
  static constexpr uint32_t kTokenBarriers = C::kMap.barriers + 16 * C::kStages;
  static constexpr uint32_t kMaySend = kTokenBarriers + 16 * C::kTokenStages;

  __device__ uint32_t weights(uint32_t stage) const { return base + stage * C::kMap.weight_stage; }
  __device__ uint32_t tokens(uint32_t stage) const {
    return base + C::kMap.token_ring + stage * C::kMap.token_stage;
  }
  __device__ uint32_t exchange() const { return base + C::kMap.exchange; }

  __device__ uint32_t weight_full(uint32_t s) const { return base + C::kMap.barriers + 8 * s; }
  __device__ uint32_t weight_empty(uint32_t s) const { return weight_full(C::kStages + s); }
  __device__ uint32_t token_full(uint32_t s) const { return base + kTokenBarriers + 8 * s; }
  __device__ uint32_t token_empty(uint32_t s) const {
    return kInStep ? weight_empty(s) : token_full(C::kTokenStages + s);
  }
  // All splits have read the last weights that lie where partial sums will.
  __device__ uint32_t may_send() const { return base + kMaySend; }
  __device__ uint32_t exchanged() const { return base + kMaySend + 8; }

  // share: the pairs of tokens that this block finishes.
  __device__ void init(uint32_t splits, uint32_t share) const {
    for (uint32_t stage = 0; stage < C::kStages; ++stage) {
      mbarrier_init(weight_full(stage), 1);
      mbarrier_init(weight_empty(stage), C::kWarps);
    }
    for (uint32_t stage = 0; stage < C::kTokenStages; ++stage) {
      mbarrier_init(token_full(stage), 1);
      if (!kInStep) mbarrier_init(token_empty(stage), C::kWarps * C::kSharers);
    }
    mbarrier_init(may_send(), C::kWarps * splits);
    mbarrier_init(exchanged(), 1);
    mbarrier_init_fence();
    // All partial sums of this block's share of the tile, its own among them.
    mbarrier_arrive_expect(exchanged(), splits * share * C::kPairBytes);
  }
};

// The row tiles of a launch that lie before those of the weight that this block reads: one weight
// has all of them. Another kind of launch overloads this for its own view of its parameters, which
// has the members of Bf16LinearParams that the device code names.
__device__ __forceinline__ uint32_t first_row_tile(const Bf16LinearParams&) { return 0; }

// Which tile of y and which part of its depth this block works on. The blocks of a cluster are, for
// each of the sharers in turn, the splits in turn.
template <typename C>
struct Work {
  uint32_t rank;        // the block's split
  uint32_t first_rank;  // in the cluster, of this sharer's first split
  uint32_t sharer;
  uint32_t splits;
  int32_t inverse;      // of splits
  uint32_t share;       // pairs of tokens that this block finishes
  uint32_t most_pairs;  // that any of the splits finishes
  int32_t row0, token0;
  int32_t first_tile, num_tiles;

  template <typename Params>
  __device__ explicit Work(const Params& params) {
    splits = static_cast<uint32_t>(params.splits);
    inverse = params.split_inverse;
    const uint32_t in_cluster = clustered() ? cluster_rank() : 0;
    sharer = bf16_linear_over(in_cluster, inverse);
    first_rank = sharer * splits;
    rank = in_cluster - first_rank;
    share = bf16_linear_share(C::kPairs, params.splits, inverse, rank);
    most_pairs = bf16_linear_share(C::kPairs, params.splits, inverse, 0);
    const uint32_t row_tile = bf16_linear_over(blockIdx.x, inverse) - first_row_tile(params);
    row0 = static_cast<int32_t>(row_tile * C::kRows);
    token0 = static_cast<int32_t>(blockIdx.y * C::kTokens);
    first_tile = bf16_linear_first_tile(params.depth_tiles, inverse, rank);
    num_tiles = bf16_linear_first_tile(params.depth_tiles, inverse, rank + 1) - first_tile;
  }

  __device__ bool clustered() const { return C::kSharers > 1 || splits != 1; }

  // The rank in the cluster of the block that works on the same depth for another sharer.
  __device__ uint32_t peer(uint32_t of_sharer) const { return of_sharer * splits + rank; }

  // The first column of a 64-column box of tile i.
  __device__ int32_t column(int32_t i, uint32_t box) const {
    return static_cast<int32_t>((first_tile + i) * C::kDepth + box * kSwizzleColumns);
  }
};

}  // namespace sdm::bf16_linear_device
