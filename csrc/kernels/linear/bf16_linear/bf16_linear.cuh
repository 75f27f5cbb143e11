// The device side of bf16_linear: y = x weight^T + bias for few rows of x, bound by reading the
// weights. One block makes a [rows, tokens] tile of y^T: the weight rows are the matrix unit's M
// side, so few tokens waste nothing. See DESIGN.md beside this file.
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/ptx/tma.cuh"
#include "kernels/common/ptx/wgmma.cuh"
#include "kernels/linear/bf16_linear/bf16_linear_block.cuh"
#include "kernels/linear/bf16_linear/bf16_linear_store.cuh"

namespace sdm::bf16_linear_device {

// Role: one thread loads the weight tiles through their ring.
template <typename C, typename Params>
__device__ __forceinline__ void load_weights(const Params& params, const Work<C>& work,
                                             const Shared<C>& shared) {
  constexpr uint32_t kBoxBytes = C::kRows * kSwizzleRowBytes;
  const void* map = &params.weight_map;
  tma_prefetch_map(map);
  for (int32_t i = 0; i < work.num_tiles; ++i) {
    const typename Shared<C>::WeightStage at(i);
    mbarrier_wait(shared.weight_empty(at.index), at.parity ^ 1);  // the first round passes
    const uint32_t full = shared.weight_full(at.index);
    mbarrier_arrive_expect(full, C::kMap.weight_stage);
#pragma unroll
    for (uint32_t box = 0; box < C::kColumns; ++box) {
      tma_load_2d(shared.weights(at.index) + box * kBoxBytes, map, work.column(i, box), work.row0,
                  full);
    }
    // The ring is full: until the tokens come, memory may go on with what follows.
    if (i + 1 != C::kStages) continue;
    const int32_t end = min(work.num_tiles, i + 1 + params.prefetch_tiles);
    for (int32_t ahead = i + 1; ahead < end; ++ahead) {
#pragma unroll
      for (uint32_t box = 0; box < C::kColumns; ++box) {
        tma_prefetch_2d(map, work.column(ahead, box), work.row0);
      }
    }
  }
}

// Role: one thread loads its slice of the token tiles through its own ring and those of its
// sharers, which send it theirs.
template <typename C, typename Params>
__device__ __forceinline__ void load_tokens(const Params& params, const Work<C>& work,
                                            const Shared<C>& shared) {
  constexpr uint32_t kBoxBytes = C::kTokens * kSwizzleRowBytes;
  const void* map = &params.x_map;
  tma_prefetch_map(map);
  uint32_t sharers = 0;
  for (uint32_t of = 0; of < C::kSharers; ++of) sharers |= 1u << work.peer(of);
  const uint32_t slice0 = work.sharer * C::kTokenSlice;
  const auto row0 = static_cast<int32_t>(work.token0 + slice0);
  const int32_t trigger = max(work.num_tiles - 1 - params.trigger_lead, 0);
  pdl_wait();
  for (int32_t i = 0; i < work.num_tiles; ++i) {
    const typename Shared<C>::TokenStage at(i);
    mbarrier_wait(shared.token_empty(at.index), at.parity ^ 1);
    const uint32_t full = shared.token_full(at.index);
    mbarrier_arrive_expect(full, C::kMap.token_stage);
    const uint32_t tile = shared.tokens(at.index) + slice0 * kSwizzleRowBytes;
#pragma unroll
    for (uint32_t box = 0; box < C::kColumns; ++box) {
      const uint32_t place = tile + box * kBoxBytes;
      if constexpr (C::kSharers == 1) {
        tma_load_2d(place, map, work.column(i, box), row0, full);
      } else {
        tma_multicast_2d(place, map, work.column(i, box), row0, full,
                         static_cast<uint16_t>(sharers));
      }
    }
    if (i == trigger) pdl_trigger();
  }
}

template <typename C>
using Accumulators = float[C::kRowBlocks][C::kTokens / 2];

template <typename C>
__device__ __forceinline__ void pin(Accumulators<C>& sums) {
#pragma unroll
  for (uint32_t block = 0; block < C::kRowBlocks; ++block) wgmma_pin(sums[block]);
}

// This warp has read tile i, and whoever refills its stages may do so. Other blocks run until their
// own last refill and no longer: a stage that nobody refills is not reported to them.
template <typename C>
__device__ __forceinline__ void free_tile(const Work<C>& work, const Shared<C>& shared, int32_t i) {
  const uint32_t lane = threadIdx.x % 32;
  if (lane == 0) mbarrier_arrive(shared.weight_empty(typename Shared<C>::WeightStage(i).index));
  if constexpr (Shared<C>::kInStep) return;
  const uint32_t tokens_empty = shared.token_empty(typename Shared<C>::TokenStage(i).index);
  if constexpr (C::kSharers == 1) {
    if (lane == 0) mbarrier_arrive(tokens_empty);
  } else {
    const bool refilled = i + static_cast<int32_t>(C::kTokenStages) < work.num_tiles;
    mbarrier_arrive_cluster_relaxed(cluster_address(tokens_empty, work.peer(lane % C::kSharers)),
                                    refilled && lane < C::kSharers);
  }
}

// The last tile whose weights lie where the partial sums will; negative if there is none.
template <typename C>
__device__ __forceinline__ int32_t last_below_exchange(int32_t num_tiles) {
  constexpr auto kBelow = static_cast<int32_t>(C::kMap.exchange_stages);
  const int32_t stage = (num_tiles - 1) % static_cast<int32_t>(C::kStages);
  return num_tiles - 1 - max(stage - (kBelow - 1), 0);
}

// Where `now`, this warp has read that tile: as far as it goes, all splits may send their sums.
template <typename C>
__device__ __forceinline__ void let_send(const Work<C>& work, const Shared<C>& shared, bool now) {
  const uint32_t lane = threadIdx.x % 32, split = min(lane, work.splits - 1);
  mbarrier_arrive_cluster_relaxed(cluster_address(shared.may_send(), work.first_rank + split),
                                  now && lane == split);
}

// Role: the warpgroup multiplies tile after tile, K in ascending order. Two tiles are in the matrix
// unit's queue at a time; a tile is freed when the one after it has been queued.
template <typename C>
__device__ __forceinline__ void multiply_tiles(const Work<C>& work, const Shared<C>& shared,
                                               Accumulators<C>& sums) {
  const int32_t last_below = last_below_exchange<C>(work.num_tiles);
  for (int32_t i = 0; i < work.num_tiles; ++i) {
    const typename Shared<C>::WeightStage weight_at(i);
    const typename Shared<C>::TokenStage token_at(i);
    // The same in all lanes, which the shuffles tell the compiler: descriptors then stay in uniform
    // registers, and products are issued without waiting for moves there.
    const uint32_t weight_stage = __shfl_sync(0xffffffffu, weight_at.index, 0);
    const uint32_t token_stage =
        Shared<C>::kInStep ? weight_stage : __shfl_sync(0xffffffffu, token_at.index, 0);
    const uint32_t weights = wgmma_descriptor(shared.weights(weight_stage));
    const uint32_t tokens = wgmma_descriptor(shared.tokens(token_stage));
    mbarrier_wait(shared.weight_full(weight_at.index), weight_at.parity);
    mbarrier_wait(shared.token_full(token_at.index), token_at.parity);
    pin<C>(sums);
    wgmma_fence();
#pragma unroll
    for (uint32_t step = 0; step < C::kDepth / kWgmmaDepth; ++step) {
      constexpr uint32_t kSteps = kSwizzleColumns / kWgmmaDepth;
      const uint32_t box = step / kSteps, within = step % kSteps * kWgmmaDepthBytes;
      const uint32_t b = wgmma_advance(tokens, box * C::kTokens * kSwizzleRowBytes + within);
#pragma unroll
      for (uint32_t block = 0; block < C::kRowBlocks; ++block) {
        const uint32_t rows = box * C::kRows + block * kWgmmaRows;
        wgmma(sums[block], wgmma_advance(weights, rows * kSwizzleRowBytes + within), b);
      }
    }
    wgmma_commit();
    if (i > 0) {
      wgmma_wait<1>();
      free_tile(work, shared, i - 1);
      if constexpr (C::kMap.exchange_stages > 0) let_send(work, shared, i - 1 == last_below);
    }
  }
  wgmma_wait<0>();
  pin<C>(sums);
  if constexpr (C::kMap.exchange_stages > 0) {
    if (last_below == work.num_tiles - 1) let_send(work, shared, true);
    mbarrier_wait(shared.may_send(), 0);
  }
}

// Calls put(pair of tokens, offset in bytes within the pair's line, four sums) for all of a
// thread's sums: those of rows r and r + 8, tokens t and t + 1 (bf16_linear_place).
template <typename C, typename Put>
__device__ __forceinline__ void for_each_four(const Accumulators<C>& sums, const Put& put) {
#pragma unroll
  for (uint32_t i = 0; i < C::kTokens / 2; i += 4) {
#pragma unroll
    for (uint32_t block = 0; block < C::kRowBlocks; ++block) {
      const uint32_t row = block * kWgmmaRows + wgmma_row(threadIdx.x, i);
      const float four[4] = {sums[block][i], sums[block][i + 1], sums[block][i + 2],
                             sums[block][i + 3]};
      put(wgmma_column(threadIdx.x, i) / 2, 4 * bf16_linear_place(row), four);
    }
  }
}

// One block for the whole depth: its sums are final, and only change hands within the block.
template <typename C>
__device__ __forceinline__ void keep_sums(uint32_t exchange, const Accumulators<C>& sums) {
  for_each_four<C>(sums, [&](uint32_t pair, uint32_t place, const float (&four)[4]) {
    asm volatile(
        "st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(exchange + pair * C::kPairBytes + place),
        "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
        : "memory");
  });
  asm volatile("bar.sync 1, %0;" ::"n"(kBf16LinearMathThreads) : "memory");
}

// Each split finishes its share of the tile's pairs of tokens (bf16_linear_share): send every
// partial sum to the block that owns its pair, into the part of its exchange buffer that belongs to
// this rank; then wait for what the peers (and this block itself) send here.
template <typename C>
__device__ __forceinline__ void exchange_sums(const Work<C>& work, const Shared<C>& shared,
                                              const Accumulators<C>& sums) {
  const uint32_t here = shared.exchange() + work.rank * work.most_pairs * C::kPairBytes;
  for_each_four<C>(sums, [&](uint32_t pair, uint32_t place, const float (&four)[4]) {
    const uint32_t turn = bf16_linear_over(pair, work.inverse);
    const uint32_t to = work.first_rank + pair - turn * work.splits;
    cluster_store_async(cluster_address(here + turn * C::kPairBytes + place, to), four,
                        cluster_address(shared.exchanged(), to));
  });
  mbarrier_wait_cluster(shared.exchanged(), 0);
}

// One block. Params: Bf16LinearParams, or a view of other parameters (first_row_tile).
template <int index, typename Params>
__device__ __forceinline__ void run(const Params& params) {
  using C = Config<index>;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Work<C> work(params);
  const Shared<C> shared{shared_address(shared_memory)};
  const bool clustered = work.clustered();
  // Whether peers' barriers are used before the sums are exchanged.
  constexpr bool kMeetEarly = C::kSharers > 1 || C::kMap.exchange_stages > 0;

  // Barriers: ready for this block, and, after cluster_wait(), for its peers.
  if (threadIdx.x == 0) {
    if (shared.base % kSwizzlePatternBytes != 0) asm volatile("trap;");
    shared.init(work.splits, work.share);
  }
  __syncthreads();
  if (clustered) cluster_arrive_relaxed();

  if (warp == C::kWeightWarp) {
    // Weights: nothing in flight writes them, so the ring fills while predecessors still run.
    if (lane == 0) load_weights(params, work, shared);
    __syncwarp();
    if (clustered) cluster_wait();
  } else if (warp == C::kTokenWarp) {
    // Tokens: a predecessor's output, and the reason to wait for it.
    if (C::kSharers > 1) cluster_wait();
    if (lane == 0) load_tokens(params, work, shared);
    __syncwarp();
    if (C::kSharers == 1 && clustered) cluster_wait();
  } else {
    // Math: the product, the exchange, the stores.
    if (kMeetEarly && clustered) cluster_wait();
    pdl_wait();
    const BiasBits bias = load_bias<C>(params, work.row0);
    Accumulators<C> sums = {};
    multiply_tiles(work, shared, sums);
    if (!kMeetEarly && clustered) cluster_wait();
    if (work.splits != 1) {
      exchange_sums<C>(work, shared, sums);
    } else {
      keep_sums<C>(shared.exchange(), sums);
    }
    finish_tokens(params, work, shared.exchange(), bias);
  }
}

}  // namespace sdm::bf16_linear_device

// One device function, `name`, for row `index` of the tactic table.
#define SDM_BF16_LINEAR_KERNEL(name, index)                                                    \
  extern "C" __global__ void __launch_bounds__(                                                \
      sdm::kBf16LinearThreads, sdm::bf16_linear_blocks_per_sm(sdm::kBf16LinearTactics[index])) \
      name(const __grid_constant__ sdm::Bf16LinearParams params) {                             \
    sdm::bf16_linear_device::run<index>(params);                                               \
  }
