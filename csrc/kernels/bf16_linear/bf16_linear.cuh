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
// `full` its barriers, `row0` its first row; a box is `box_rows` rows of 64 columns.
template <typename C, typename Full>
__device__ __forceinline__ void load_tiles(const Work<C>& work, const Barriers<C>& barriers,
                                           const Full& full, const void* map, uint32_t ring,
                                           int32_t row0, uint32_t box_rows) {
  const uint32_t box_bytes = box_rows * kSwizzleRowBytes;
  for (int32_t i = 0; i < work.num_tiles; ++i) {
    const RingSlot<C> slot(i);
    mbarrier_wait(barriers.empty(slot.stage), slot.parity ^ 1);  // the first round passes at once
    mbarrier_arrive_expect(full(slot.stage), C::kColumns * box_bytes);
    const uint32_t stage = ring + slot.stage * C::kColumns * box_bytes;
    const auto column0 = static_cast<int32_t>((work.first_tile + i) * C::kDepth);
#pragma unroll
    for (uint32_t box = 0; box < C::kColumns; ++box) {
      const auto column = static_cast<int32_t>(column0 + box * kSwizzleColumns);
      tma_load_2d(stage + box * box_bytes, map, column, row0, full(slot.stage));
    }
  }
}

template <typename C>
using Accumulators = float[C::kRowBlocks][C::kTokens / 2];

// Role: the warpgroup multiplies tile after tile, K in ascending order, and frees each stage.
template <typename C>
__device__ __forceinline__ void multiply_tiles(const Work<C>& work, const Barriers<C>& barriers,
                                               uint32_t shared, Accumulators<C>& sums) {
  for (int32_t i = 0; i < work.num_tiles; ++i) {
    const RingSlot<C> slot(i);
    const uint64_t weights = wgmma_descriptor(shared + slot.stage * C::kMap.weight_stage);
    const uint64_t tokens =
        wgmma_descriptor(shared + C::kMap.token_ring + slot.stage * C::kMap.token_stage);
    mbarrier_wait(barriers.weight_full(slot.stage), slot.parity);
    mbarrier_wait(barriers.token_full(slot.stage), slot.parity);
#pragma unroll
    for (uint32_t b = 0; b < C::kRowBlocks; ++b) wgmma_pin(sums[b]);
    wgmma_fence();
#pragma unroll
    for (uint32_t step = 0; step < C::kDepth / kWgmmaDepth; ++step) {
      constexpr uint32_t kSteps = kSwizzleColumns / kWgmmaDepth;
      const uint32_t box = step / kSteps, within = step % kSteps * kWgmmaDepthBytes;
      const uint64_t b = wgmma_advance(tokens, box * C::kTokens * kSwizzleRowBytes + within);
#pragma unroll
      for (uint32_t block = 0; block < C::kRowBlocks; ++block) {
        const uint32_t rows = box * C::kRows + block * kWgmmaRows;
        wgmma(sums[block], wgmma_advance(weights, rows * kSwizzleRowBytes + within), b);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (uint32_t b = 0; b < C::kRowBlocks; ++b) wgmma_pin(sums[b]);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barriers.empty(slot.stage));
  }
}

// Puts the partial sums of rows r and r + 8 side by side into the exchange buffer: put(token,
// offset in bytes within the token's line, a, b).
template <typename C, typename Put>
__device__ __forceinline__ void for_each_pair(const Accumulators<C>& sums, const Put& put) {
#pragma unroll
  for (uint32_t i = 0; i < C::kTokens / 2; i += 4) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
#pragma unroll
      for (uint32_t block = 0; block < C::kRowBlocks; ++block) {
        const uint32_t row = block * kWgmmaRows + wgmma_row(threadIdx.x, i + e);
        put(wgmma_column(threadIdx.x, i + e), 4 * bf16_linear_place(row), sums[block][i + e],
            sums[block][i + e + 2]);
      }
    }
  }
}

// One block for the whole depth: its sums are final, and only change hands within the block.
template <typename C>
__device__ __forceinline__ void keep_sums(uint32_t exchange, const Accumulators<C>& sums) {
  for_each_pair<C>(sums, [&](uint32_t token, uint32_t place, float a, float b) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(exchange + 4 * token * C::kRows + place),
                 "f"(a), "f"(b)
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
  for_each_pair<C>(sums, [&](uint32_t token, uint32_t place, float a, float b) {
    const uint32_t owner = token >> share_log2;
    const uint32_t line = ((rank - owner) << share_log2) + token;  // rank * share + token % share
    cluster_store_async(cluster_address(exchange + 4 * line * C::kRows + place, owner), a, b,
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

// The bias of the four rows that a thread finishes (bf16_linear_quad_row). Kept as bits until the
// end, so that nothing waits for the loads before the product.
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
  const uint32_t quad = threadIdx.x % (C::kRows / 4);
  BiasBits bias{};  // zeros
  if (params.bias == nullptr) return bias;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const int32_t n = row0 + static_cast<int32_t>(bf16_linear_quad_row(quad, i));
    if (n < params.num_rows) bias.at[i] = load_coherent(params.bias + n);
  }
  return bias;
}

// Adds the partial sums of this block's tokens in the order of the ranks, then the bias, rounds
// once and stores the rows and tokens that exist.
template <typename C>
__device__ __forceinline__ void finish_tokens(const Bf16LinearParams& params, const Work<C>& work,
                                              uint32_t exchange, const BiasBits& bias_bits) {
  constexpr uint32_t kQuads = C::kRows / 4;
  static_assert(kBf16LinearMathThreads % kQuads == 0, "a thread must stay with its four rows");
  const uint32_t share = C::kTokens >> params.split_log2;
  const uint32_t quad = threadIdx.x % kQuads;
  const int32_t n = work.row0 + static_cast<int32_t>(bf16_linear_quad_row(quad, 0));
  float bias[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) bias[i] = bf16_to_float(bias_bits.at[i]);
  for (uint32_t t = threadIdx.x / kQuads; t < share; t += kBf16LinearMathThreads / kQuads) {
    const auto m = static_cast<int32_t>(work.token0 + work.rank * share + t);
    if (m >= params.num_tokens) break;
    const uint32_t place = exchange + 4 * (t * C::kRows + 4 * quad);
    float4 sum = load_shared_float4(place);
    for (int32_t rank = 1; rank < 1 << params.split_log2; ++rank) {
      const float4 part = load_shared_float4(place + 4 * rank * share * C::kRows);
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    uint16_t* row = params.y + m * params.y_stride;
    // bf16_linear_quad_row: rows n, n + 8, n + 1, n + 9.
    store_pair(params, row, n, sum.x + bias[0], sum.z + bias[2]);
    store_pair(params, row, n + 8, sum.y + bias[1], sum.w + bias[3]);
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
    if (lane == 0) {
      tma_prefetch_map(&params.weight_map);
      load_tiles(
          work, barriers, [&](uint32_t s) { return barriers.weight_full(s); }, &params.weight_map,
          shared, work.row0, C::kRows);
    }
    __syncwarp();
    if (clustered) cluster_wait();
  } else if (warp == C::kTokenWarp) {
    // Tokens: a predecessor's output, and the reason to wait for it.
    if (lane == 0) {
      tma_prefetch_map(&params.x_map);
      pdl_wait();
      pdl_trigger();
      load_tiles(
          work, barriers, [&](uint32_t s) { return barriers.token_full(s); }, &params.x_map,
          shared + C::kMap.token_ring, work.token0, C::kTokens);
    }
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
