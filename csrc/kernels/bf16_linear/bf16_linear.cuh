// The device side of bf16_linear: y = x weight^T + bias for few rows of x, bound by the stream of
// weights. One block makes a [rows, tokens] tile of y^T: the weight rows are the matrix unit's M
// side, so few tokens waste nothing. See DESIGN.md beside this file.
#pragma once
#include "kernels/bf16_linear/bf16_linear_geometry.h"
#include "kernels/bf16_linear/bf16_linear_params.h"
#include "kernels/common/bf16.h"
#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/pdl.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/wgmma.cuh"

namespace sdm::bf16_linear_device {

// A tactic's sizes as compile-time constants.
template <int index>
struct Config {
  static constexpr Bf16LinearTactic kTactic = kBf16LinearTactics[index];
  static constexpr Bf16LinearSharedMap kMap = bf16_linear_shared_map(kTactic);
  static constexpr uint32_t kRows = kTactic.rows, kTokens = kTactic.tokens;
  static constexpr uint32_t kDepth = kTactic.depth, kStages = kTactic.stages;
  static constexpr uint32_t kTokensLog2 = bf16_linear_log2(kTactic.tokens);
  static constexpr uint32_t kRowBlocks = kRows / kWgmmaRows;      // wgmma tiles of a block
  static constexpr uint32_t kColumns = kDepth / kSwizzleColumns;  // 64-column boxes of a stage
  static constexpr uint32_t kWarps = kBf16LinearMathThreads / 32;
  static constexpr uint32_t kWeightWarp = kWarps, kTokenWarp = kWarps + 1;
};

// Shared-memory addresses of the barriers. Ring stage s: full when its bytes have arrived, empty
// when the four math warps have read it.
template <typename C>
struct Barriers {
  uint32_t base;
  __device__ uint32_t weight_full(uint32_t stage) const { return base + 8 * stage; }
  __device__ uint32_t token_full(uint32_t stage) const { return base + 8 * (C::kStages + stage); }
  __device__ uint32_t empty(uint32_t stage) const { return base + 8 * (2 * C::kStages + stage); }
  __device__ uint32_t exchanged() const { return base + 8 * 3 * C::kStages; }

  __device__ void init() const {
    for (uint32_t stage = 0; stage < C::kStages; ++stage) {
      mbarrier_init(weight_full(stage), 1);
      mbarrier_init(token_full(stage), 1);
      mbarrier_init(empty(stage), C::kWarps);
    }
    mbarrier_init(exchanged(), 1);
    mbarrier_init_fence();
    // All partial sums of this block's share of the tile, its own among them.
    mbarrier_arrive_expect(exchanged(), C::kMap.exchange_bytes);
  }
};

// Which tile of y and which part of its depth this block works on.
template <typename C>
struct Work {
  uint32_t rank;  // in the cluster: the block's split
  int32_t row0, token0;
  int32_t first_tile, num_tiles;

  __device__ explicit Work(const Bf16LinearParams& params) {
    rank = params.split_log2 != 0 ? cluster_rank() : 0;
    row0 = static_cast<int32_t>((blockIdx.x >> params.split_log2) * C::kRows);
    token0 = static_cast<int32_t>(blockIdx.y * C::kTokens);
    const auto split = static_cast<int32_t>(rank);
    first_tile = bf16_linear_first_tile(params.depth_tiles, params.split_log2, split);
    const int32_t end = bf16_linear_first_tile(params.depth_tiles, params.split_log2, split + 1);
    num_tiles = end - first_tile;
  }

  // The first column of a 64-column box of tile i.
  __device__ int32_t column(int32_t i, uint32_t box) const {
    return static_cast<int32_t>((first_tile + i) * C::kDepth + box * kSwizzleColumns);
  }
};

// The ring position of tile i: stages are used in turn, and a barrier's phase flips every round.
template <typename C>
struct RingSlot {
  uint32_t stage, parity;
  __device__ explicit RingSlot(int32_t tile)
      : stage(static_cast<uint32_t>(tile) % C::kStages),
        parity(static_cast<uint32_t>(tile) / C::kStages & 1) {}
};

// Role: one thread streams one operand's tiles through the ring. `ring` is the operand's own ring,
// `full` its barriers, `row0` its first row; a box is `box_rows` rows of 64 columns. asked(i) is
// called when tile i has been asked for.
template <typename C, typename Full, typename Asked>
__device__ __forceinline__ void load_tiles(const Work<C>& work, const Barriers<C>& barriers,
                                           const Full& full, const void* map, uint32_t ring,
                                           int32_t row0, uint32_t box_rows, const Asked& asked) {
  const uint32_t box_bytes = box_rows * kSwizzleRowBytes;
  for (int32_t i = 0; i < work.num_tiles; ++i) {
    const RingSlot<C> slot(i);
    mbarrier_wait(barriers.empty(slot.stage), slot.parity ^ 1);  // the first round passes at once
    mbarrier_arrive_expect(full(slot.stage), C::kColumns * box_bytes);
    const uint32_t stage = ring + slot.stage * C::kColumns * box_bytes;
#pragma unroll
    for (uint32_t box = 0; box < C::kColumns; ++box) {
      tma_load_2d(stage + box * box_bytes, map, work.column(i, box), row0, full(slot.stage));
    }
    asked(i);
  }
}

template <typename C>
__device__ __forceinline__ void load_weights(const Bf16LinearParams& params, const Work<C>& work,
                                             const Barriers<C>& barriers, uint32_t shared) {
  const void* map = &params.weight_map;
  tma_prefetch_map(map);
  const auto full = [&](uint32_t stage) { return barriers.weight_full(stage); };
  load_tiles(work, barriers, full, map, shared, work.row0, C::kRows, [&](int32_t i) {
    // The ring is full: until the tokens come, memory may go on with what follows.
    if (i + 1 != C::kStages) return;
    const int32_t end = min(work.num_tiles, i + 1 + params.prefetch_tiles);
    for (int32_t ahead = i + 1; ahead < end; ++ahead) {
#pragma unroll
      for (uint32_t box = 0; box < C::kColumns; ++box) {
        tma_prefetch_2d(map, work.column(ahead, box), work.row0);
      }
    }
  });
}

template <typename C>
__device__ __forceinline__ void load_tokens(const Bf16LinearParams& params, const Work<C>& work,
                                            const Barriers<C>& barriers, uint32_t shared) {
  tma_prefetch_map(&params.x_map);
  pdl_wait();
  const int32_t trigger = max(work.num_tiles - 1 - params.trigger_lead, 0);
  const auto full = [&](uint32_t stage) { return barriers.token_full(stage); };
  load_tiles(work, barriers, full, &params.x_map, shared + C::kMap.token_ring, work.token0,
             C::kTokens, [&](int32_t i) {
               if (i == trigger) pdl_trigger();
             });
}

template <typename C>
using Accumulators = float[C::kRowBlocks][C::kTokens / 2];

template <typename C>
__device__ __forceinline__ void pin(Accumulators<C>& sums) {
#pragma unroll
  for (uint32_t block = 0; block < C::kRowBlocks; ++block) wgmma_pin(sums[block]);
}

// Role: the warpgroup multiplies tile after tile, K in ascending order. Two tiles are in the matrix
// unit's queue at a time; a stage is freed when the tile after it has been queued.
template <typename C>
__device__ __forceinline__ void multiply_tiles(const Work<C>& work, const Barriers<C>& barriers,
                                               uint32_t shared, Accumulators<C>& sums) {
  for (int32_t i = 0; i < work.num_tiles; ++i) {
    const RingSlot<C> slot(i);
    // The same in all lanes, which the shuffle tells the compiler: descriptors then stay in uniform
    // registers, and products are issued without waiting for moves there.
    const uint32_t stage = __shfl_sync(0xffffffffu, slot.stage, 0);
    const uint32_t weights = wgmma_descriptor(shared + stage * C::kMap.weight_stage);
    const uint32_t tokens =
        wgmma_descriptor(shared + C::kMap.token_ring + stage * C::kMap.token_stage);
    mbarrier_wait(barriers.weight_full(slot.stage), slot.parity);
    mbarrier_wait(barriers.token_full(slot.stage), slot.parity);
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
      if (threadIdx.x % 32 == 0) mbarrier_arrive(barriers.empty(RingSlot<C>(i - 1).stage));
    }
  }
  wgmma_wait<0>();
  pin<C>(sums);
}

// Calls put(token, offset in bytes within the token pair's line, four sums) for all of a thread's
// sums: those of rows r and r + 8, tokens t and t + 1 (bf16_linear_place).
template <typename C, typename Put>
__device__ __forceinline__ void for_each_four(const Accumulators<C>& sums, const Put& put) {
#pragma unroll
  for (uint32_t i = 0; i < C::kTokens / 2; i += 4) {
#pragma unroll
    for (uint32_t block = 0; block < C::kRowBlocks; ++block) {
      const uint32_t row = block * kWgmmaRows + wgmma_row(threadIdx.x, i);
      const float four[4] = {sums[block][i], sums[block][i + 1], sums[block][i + 2],
                             sums[block][i + 3]};
      put(wgmma_column(threadIdx.x, i), 4 * bf16_linear_place(row), four);
    }
  }
}

// One block for the whole depth: its sums are final, and only change hands within the block.
template <typename C>
__device__ __forceinline__ void keep_sums(uint32_t exchange, const Accumulators<C>& sums) {
  for_each_four<C>(sums, [&](uint32_t token, uint32_t place, const float (&four)[4]) {
    asm volatile(
        "st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(exchange + 4 * token * C::kRows + place),
        "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
        : "memory");
  });
  asm volatile("bar.sync 1, %0;" ::"n"(kBf16LinearMathThreads) : "memory");
}

// Each block of the cluster finishes tokens / splits tokens of the tile: send every partial sum to
// the block that owns its token, into the part of its exchange buffer that belongs to this rank;
// then wait for what the peers (and this block itself) send here.
template <typename C>
__device__ __forceinline__ void exchange_sums(const Bf16LinearParams& params, uint32_t rank,
                                              uint32_t exchange, uint32_t exchanged,
                                              const Accumulators<C>& sums) {
  const uint32_t share_log2 = C::kTokensLog2 - params.split_log2;
  for_each_four<C>(sums, [&](uint32_t token, uint32_t place, const float (&four)[4]) {
    const uint32_t owner = token >> share_log2;
    const uint32_t line = ((rank - owner) << share_log2) + token;  // rank * share + token % share
    cluster_store_async(cluster_address(exchange + 4 * line * C::kRows + place, owner), four,
                        cluster_address(exchanged, owner));
  });
  mbarrier_wait_cluster(exchanged, 0);
}

__device__ __forceinline__ float4 load_shared_float4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// Columns n and n + 1 of one row of y, those below N.
__device__ __forceinline__ void store_pair(const Bf16LinearParams& params, uint16_t* row, int32_t n,
                                           float a, float b) {
  const uint32_t low = float_to_bf16(a), high = float_to_bf16(b);
  if (params.paired_store && n + 1 < params.num_rows) {
    *reinterpret_cast<uint32_t*>(row + n) = high << 16 | low;
  } else {
    if (n < params.num_rows) row[n] = static_cast<uint16_t>(low);
    if (n + 1 < params.num_rows) row[n + 1] = static_cast<uint16_t>(high);
  }
}

// The bias of the rows r, r + 1, r + 8, r + 9 that a thread finishes. Kept as bits until the end,
// so that nothing waits for the loads before the product.
struct BiasBits {
  uint16_t at[4];
};

// Loaded past the non-coherent path: the bias may be a predecessor's output.
__device__ __forceinline__ uint16_t load_coherent(const uint16_t* address) {
  uint16_t bits;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(address) : "memory");
  return bits;
}

template <typename C>
__device__ __forceinline__ BiasBits load_bias(const Bf16LinearParams& params, int32_t row0) {
  const uint32_t row = bf16_linear_unit_row(threadIdx.x % (C::kRows / 4));
  BiasBits bias{};  // zeros
  if (params.bias == nullptr) return bias;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const auto n = static_cast<int32_t>(row0 + row + i / 2 * 8 + i % 2);
    if (n < params.num_rows) bias.at[i] = load_coherent(params.bias + n);
  }
  return bias;
}

// The sums of a unit: rows r, r + 1, r + 8, r + 9 (the index) of tokens t and t + 1.
struct UnitSums {
  float first[4], second[4];

  __device__ void add(uint32_t place) {
    const float4 a = load_shared_float4(place), b = load_shared_float4(place + 16);
    first[0] += a.x, first[1] += b.x, first[2] += a.z, first[3] += b.z;
    second[0] += a.y, second[1] += b.y, second[2] += a.w, second[3] += b.w;
  }
};

// One token of a unit: the bias last, one rounding, the rows and tokens that exist.
__device__ __forceinline__ void store_token(const Bf16LinearParams& params, int32_t m, int32_t n,
                                            const float (&sums)[4], const BiasBits& bias) {
  if (m >= params.num_tokens) return;
  float out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = sums[i] + bf16_to_float(bias.at[i]);
  uint16_t* row = params.y + m * params.y_stride;
  store_pair(params, row, n, out[0], out[1]);
  store_pair(params, row, n + 8, out[2], out[3]);
}

// Adds the partial sums of this block's tokens in the order of the ranks and stores the results.
template <typename C>
__device__ __forceinline__ void finish_tokens(const Bf16LinearParams& params, const Work<C>& work,
                                              uint32_t exchange, const BiasBits& bias) {
  constexpr uint32_t kUnits = C::kRows / 4;  // of a pair of tokens
  static_assert(kBf16LinearMathThreads % kUnits == 0, "a thread must stay with its four rows");
  const uint32_t share = C::kTokens >> params.split_log2;
  const uint32_t unit = threadIdx.x % kUnits;
  const auto n = static_cast<int32_t>(work.row0 + bf16_linear_unit_row(unit));
  const uint32_t step = 2 * kBf16LinearMathThreads / kUnits;
  for (uint32_t t = 2 * (threadIdx.x / kUnits); t < share; t += step) {
    const auto m = static_cast<int32_t>(work.token0 + work.rank * share + t);
    if (m >= params.num_tokens) break;
    UnitSums sums{};
    for (uint32_t rank = 0; rank < 1u << params.split_log2; ++rank) {
      sums.add(exchange + 4 * ((rank * share + t) * C::kRows + 8 * unit));
    }
    store_token(params, m, n, sums.first, bias);
    store_token(params, m + 1, n, sums.second, bias);
  }
}

// One block.
template <int index>
__device__ __forceinline__ void run(const Bf16LinearParams& params) {
  using C = Config<index>;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t shared = shared_address(shared_memory);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t exchange = shared + C::kMap.exchange;
  const Barriers<C> barriers{shared + C::kMap.barriers};
  const Work<C> work(params);
  const bool clustered = params.split_log2 != 0;

  // Barriers: ready for this block, and, after cluster_wait(), for its peers.
  if (threadIdx.x == 0) {
    if (shared % kSwizzlePatternBytes != 0) asm volatile("trap;");
    barriers.init();
  }
  __syncthreads();
  if (clustered) cluster_arrive_relaxed();

  if (warp == C::kWeightWarp) {
    // Weights: nothing in flight writes them, so the ring fills while predecessors still run.
    if (lane == 0) load_weights(params, work, barriers, shared);
    __syncwarp();
    if (clustered) cluster_wait();
  } else if (warp == C::kTokenWarp) {
    // Tokens: a predecessor's output, and the reason to wait for it.
    if (lane == 0) load_tokens(params, work, barriers, shared);
    __syncwarp();
    if (clustered) cluster_wait();
  } else {
    // Math: the product, the exchange, the stores.
    pdl_wait();
    const BiasBits bias = load_bias<C>(params, work.row0);
    Accumulators<C> sums = {};
    multiply_tiles(work, barriers, shared, sums);
    if (clustered) {
      cluster_wait();
      exchange_sums<C>(params, work.rank, exchange, barriers.exchanged(), sums);
    } else {
      keep_sums<C>(exchange, sums);
    }
    finish_tokens(params, work, exchange, bias);
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
