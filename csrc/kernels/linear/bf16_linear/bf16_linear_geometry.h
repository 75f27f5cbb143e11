// Sizes that follow from a tactic: the shared-memory map, the threads, the grid. Host and device
// read the same functions.
#pragma once
#include "kernels/common/ptx/wgmma_layout.h"
#include "kernels/linear/bf16_linear/bf16_linear_tactics.h"

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
  uint32_t exchange;    // offset: partial sums [splits][largest share of pairs][2 * rows], f32
  uint32_t exchange_bytes;
  uint32_t exchange_stages;  // 0, or the partial sums lie over this many first weight stages
  uint32_t barriers;  // offset: full and empty of [stages], of [token_stages], may_send, exchanged
  uint32_t total;
};

// x / splits without a division: x * inverse >> 30, exact below 2^27 for at most 8 splits.
SDM_HD constexpr int32_t bf16_linear_inverse(int32_t splits) {
  return ((1 << 30) + splits - 1) / splits;
}
SDM_HD constexpr uint32_t bf16_linear_over(uint32_t x, int32_t inverse) {
  return static_cast<uint32_t>(static_cast<uint64_t>(x) * static_cast<uint32_t>(inverse) >> 30);
}

constexpr bool bf16_linear_inverses_divide() {
  for (int32_t splits = 1; splits <= kBf16LinearMaxCluster; ++splits) {
    const auto divisor = static_cast<uint32_t>(splits);
    for (uint32_t i = 0; i < 4096; ++i) {
      for (const uint32_t x : {i, (1u << 27) - 1 - i}) {
        if (bf16_linear_over(x, bf16_linear_inverse(splits)) != x / divisor) return false;
      }
    }
  }
  return true;
}
static_assert(bf16_linear_inverses_divide());

// The pairs of a tile's tokens are dealt to its splits in turn: split p % splits finishes pair p,
// as its p / splits-th. So shares differ by a pair at most, also where the tokens end in the tile;
// split 0 has the largest.
SDM_HD constexpr uint32_t bf16_linear_share(uint32_t pairs, int32_t splits, int32_t inverse,
                                            uint32_t rank) {
  return bf16_linear_over(pairs + static_cast<uint32_t>(splits) - 1 - rank, inverse);
}

// The partial sums of one pair of tokens, from one split.
SDM_HD constexpr uint32_t bf16_linear_pair_bytes(const Bf16LinearTactic& tactic) {
  return 2 * static_cast<uint32_t>(tactic.rows) * 4;
}

// What a block of this many splits receives at most.
SDM_HD constexpr uint32_t bf16_linear_exchange_bytes(const Bf16LinearTactic& tactic,
                                                     int32_t splits) {
  const uint32_t largest = bf16_linear_share(static_cast<uint32_t>(tactic.tokens) / 2, splits,
                                             bf16_linear_inverse(splits), 0);
  return static_cast<uint32_t>(splits) * largest * bf16_linear_pair_bytes(tactic);
}

SDM_HD constexpr Bf16LinearSharedMap bf16_linear_place_exchange(const Bf16LinearTactic& tactic,
                                                                bool over_weights,
                                                                uint32_t exchange_bytes) {
  const auto row_bytes = static_cast<uint32_t>(tactic.depth) * 2;
  const auto stages = static_cast<uint32_t>(tactic.stages);
  const auto token_stages = static_cast<uint32_t>(tactic.token_stages);
  Bf16LinearSharedMap map{};
  map.weight_stage = static_cast<uint32_t>(tactic.rows) * row_bytes;
  map.token_stage = static_cast<uint32_t>(tactic.tokens) * row_bytes;
  map.token_ring = stages * map.weight_stage;
  const uint32_t rings = map.token_ring + token_stages * map.token_stage;
  map.exchange_bytes = exchange_bytes;
  map.exchange = over_weights ? 0 : rings;
  map.exchange_stages =
      over_weights ? (map.exchange_bytes + map.weight_stage - 1) / map.weight_stage : 0;
  map.barriers = over_weights ? rings : rings + map.exchange_bytes;
  map.total = map.barriers + 8 * (2 * (stages + token_stages) + 2);
  return map;
}

// The partial sums get memory of their own unless that would leave room for fewer blocks an SM.
// Unequal shares take a little more than equal ones: what there is room for. Splits whose partial
// sums do not fit then are not valid (bf16_linear_splits_valid).
SDM_HD constexpr Bf16LinearSharedMap bf16_linear_shared_map(const Bf16LinearTactic& tactic) {
  uint32_t most = 0;
  for (int32_t splits = 1; splits <= kBf16LinearMaxCluster / tactic.sharers; ++splits) {
    const uint32_t bytes = bf16_linear_exchange_bytes(tactic, splits);
    most = bytes > most ? bytes : most;
  }
  const uint32_t equal = bf16_linear_exchange_bytes(tactic, 1);
  const Bf16LinearSharedMap apart = bf16_linear_place_exchange(tactic, false, equal);
  const Bf16LinearSharedMap over = bf16_linear_place_exchange(tactic, true, most);
  for (const uint32_t room : {kHalfSmBytes, kBlockSmBytes}) {
    if (apart.total <= room) {
      const uint32_t pair = bf16_linear_pair_bytes(tactic);
      const uint32_t fits = equal + (room - apart.total) / pair * pair;
      return bf16_linear_place_exchange(tactic, false, fits < most ? fits : most);
    }
    if (over.total <= room) return over;
  }
  return apart;  // fits nowhere: not valid
}

// Whether this many blocks can share a tile's depth: one cluster, and room for the exchange.
SDM_HD constexpr bool bf16_linear_splits_valid(const Bf16LinearTactic& tactic, int32_t splits) {
  return splits >= 1 && splits <= kBf16LinearMaxCluster / tactic.sharers &&
         bf16_linear_exchange_bytes(tactic, splits) <=
             bf16_linear_shared_map(tactic).exchange_bytes;
}

SDM_HD constexpr int bf16_linear_blocks_per_sm(const Bf16LinearTactic& tactic) {
  return bf16_linear_shared_map(tactic).total <= kHalfSmBytes ? 2 : 1;
}

// Rows of x that one block loads of a token tile, for itself and its sharers.
SDM_HD constexpr int32_t bf16_linear_token_slice(const Bf16LinearTactic& tactic) {
  return tactic.tokens / tactic.sharers;
}

// Whether every pair has an owner with a place for it, and the shares are all of the pairs.
constexpr bool bf16_linear_deals(const Bf16LinearTactic& tactic, int32_t splits) {
  const int32_t inverse = bf16_linear_inverse(splits);
  const auto pairs = static_cast<uint32_t>(tactic.tokens) / 2,
             ranks = static_cast<uint32_t>(splits);
  uint32_t dealt = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    dealt += bf16_linear_share(pairs, splits, inverse, rank);
  }
  for (uint32_t pair = 0; pair < pairs; ++pair) {
    const uint32_t turn = bf16_linear_over(pair, inverse), owner = pair - turn * ranks;
    if (owner >= ranks || turn >= bf16_linear_share(pairs, splits, inverse, owner)) return false;
  }
  return dealt == pairs;
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

constexpr bool bf16_linear_tactics_deal() {
  for (const Bf16LinearTactic& tactic : kBf16LinearTactics) {
    for (int32_t splits = 1; splits <= kBf16LinearMaxCluster; ++splits) {
      if (!bf16_linear_deals(tactic, splits)) return false;
    }
  }
  return true;
}
static_assert(bf16_linear_tactics_deal());

// The first depth tile of a split, which ends where the next one starts: depth_tiles * rank /
// splits. Splits without a tile add zeros.
SDM_HD constexpr int32_t bf16_linear_first_tile(int32_t depth_tiles, int32_t inverse,
                                                uint32_t rank) {
  return static_cast<int32_t>(bf16_linear_over(static_cast<uint32_t>(depth_tiles) * rank, inverse));
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
