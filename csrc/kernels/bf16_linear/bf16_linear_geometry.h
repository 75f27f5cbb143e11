// Sizes that follow from a tactic: the shared-memory map, the threads, the grid. Host and device
// read the same functions.
#pragma once
#include "kernels/bf16_linear/bf16_linear_tactics.h"
#include "kernels/common/wgmma_layout.h"

namespace sdm {

inline constexpr uint32_t kBf16LinearMathThreads = 128;                      // one warpgroup
inline constexpr uint32_t kBf16LinearThreads = kBf16LinearMathThreads + 64;  // and two load warps

// What two resident blocks of one SM may use each: (228 KiB - 2 * 1 KiB reserved) / 2.
inline constexpr uint32_t kHalfSmBytes = 113 * 1024;
inline constexpr uint32_t kBlockSmBytes = 227 * 1024;  // the most that one block may ask for

// Offsets in bytes. The rings come first: their tiles must start at multiples of 1024.
struct Bf16LinearSharedMap {
  uint32_t weight_stage;  // bytes of one stage
  uint32_t token_stage;
  uint32_t token_ring;  // offset; the weight ring is at 0
  uint32_t exchange;    // offset: partial sums [splits][tokens / 2 / splits][2 * rows], f32
  uint32_t exchange_bytes;
  uint32_t exchange_stages;  // 0, or the partial sums lie over this many first weight stages
  uint32_t barriers;  // offset: full and empty of [stages], of [token_stages], may_send, exchanged
  uint32_t total;
};

SDM_HD constexpr Bf16LinearSharedMap bf16_linear_place_exchange(const Bf16LinearTactic& tactic,
                                                                bool over_weights) {
  const auto rows = static_cast<uint32_t>(tactic.rows);
  const auto tokens = static_cast<uint32_t>(tactic.tokens);
  const auto row_bytes = static_cast<uint32_t>(tactic.depth) * 2;
  const auto stages = static_cast<uint32_t>(tactic.stages);
  const auto token_stages = static_cast<uint32_t>(tactic.token_stages);
  Bf16LinearSharedMap map{};
  map.weight_stage = rows * row_bytes;
  map.token_stage = tokens * row_bytes;
  map.token_ring = stages * map.weight_stage;
  const uint32_t rings = map.token_ring + token_stages * map.token_stage;
  map.exchange_bytes = rows * tokens * 4;
  map.exchange = over_weights ? 0 : rings;
  map.exchange_stages =
      over_weights ? (map.exchange_bytes + map.weight_stage - 1) / map.weight_stage : 0;
  map.barriers = over_weights ? rings : rings + map.exchange_bytes;
  map.total = map.barriers + 8 * (2 * (stages + token_stages) + 2);
  return map;
}

// The partial sums get memory of their own unless that would leave room for fewer blocks an SM.
SDM_HD constexpr Bf16LinearSharedMap bf16_linear_shared_map(const Bf16LinearTactic& tactic) {
  const Bf16LinearSharedMap apart = bf16_linear_place_exchange(tactic, false);
  const Bf16LinearSharedMap over = bf16_linear_place_exchange(tactic, true);
  for (const uint32_t room : {kHalfSmBytes, kBlockSmBytes}) {
    if (apart.total <= room) return apart;
    if (over.total <= room) return over;
  }
  return apart;  // fits nowhere: not valid
}

SDM_HD constexpr int bf16_linear_blocks_per_sm(const Bf16LinearTactic& tactic) {
  return bf16_linear_shared_map(tactic).total <= kHalfSmBytes ? 2 : 1;
}

// Rows of x that one block loads of a token tile, for itself and its sharers.
SDM_HD constexpr int32_t bf16_linear_token_slice(const Bf16LinearTactic& tactic) {
  return tactic.tokens / tactic.sharers;
}

SDM_HD constexpr int32_t bf16_linear_log2(int32_t power_of_two) {
  int32_t log2 = 0;
  while (1 << log2 < power_of_two) ++log2;
  return log2;
}

constexpr bool bf16_linear_tactic_valid(const Bf16LinearTactic& tactic) {
  const Bf16LinearSharedMap map = bf16_linear_shared_map(tactic);
  return (tactic.rows == 64 || tactic.rows == 128) && tactic.tokens >= 8 && tactic.tokens <= 128 &&
         (tactic.tokens & (tactic.tokens - 1)) == 0 && tactic.depth % kSwizzleColumns == 0 &&
         tactic.stages > static_cast<int32_t>(map.exchange_stages) && tactic.token_stages >= 2 &&
         tactic.sharers >= 1 && tactic.sharers <= kBf16LinearMaxCluster &&
         (tactic.sharers & (tactic.sharers - 1)) == 0 &&
         bf16_linear_token_slice(tactic) * kSwizzleRowBytes % kSwizzlePatternBytes == 0 &&
         map.weight_stage % kSwizzlePatternBytes == 0 && map.total <= kBlockSmBytes;
}

constexpr bool bf16_linear_tactics_valid() {
  for (const Bf16LinearTactic& tactic : kBf16LinearTactics) {
    if (!bf16_linear_tactic_valid(tactic)) return false;
  }
  return true;
}
static_assert(bf16_linear_tactics_valid());

// The first depth tile of split `rank` of 2^split_log2, which ends where the next one starts.
SDM_HD constexpr int32_t bf16_linear_first_tile(int32_t depth_tiles, int32_t split_log2,
                                                int32_t rank) {
  return depth_tiles * rank >> split_log2;
}

// The exchange buffer holds, for each pair of tokens t and t + 1, a line of 2 * rows floats in
// which the four sums that a thread holds together, (r, t), (r, t + 1), (r + 8, t), (r + 8, t + 1),
// lie together: the place in the line of those of row r (r % 16 < 8).
SDM_HD constexpr uint32_t bf16_linear_place(uint32_t row) { return (row / 16 * 8 + row % 8) * 4; }

// A thread finishes the rows r, r + 1, r + 8, r + 9 of its unit: those at places 8 * unit .. + 7.
SDM_HD constexpr uint32_t bf16_linear_unit_row(uint32_t unit) {
  return unit / 4 * 16 + unit % 4 * 2;
}

constexpr bool bf16_linear_places_agree() {
  for (uint32_t unit = 0; unit < 128 / 4; ++unit) {
    const uint32_t row = bf16_linear_unit_row(unit);
    if (bf16_linear_place(row) != 8 * unit || bf16_linear_place(row + 1) != 8 * unit + 4) {
      return false;
    }
  }
  return true;
}
static_assert(bf16_linear_places_agree());

}  // namespace sdm
