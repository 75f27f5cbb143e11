// Which tactic serves a shape: a pure function of the shape and the SM count.
#pragma once
#include <string>

#include "kernels/linear/bf16_linear/bf16_linear_geometry.h"

namespace sdm {

struct Bf16LinearShape {
  int64_t num_tokens = 0;  // M, the rows of x
  int64_t num_rows = 0;    // N, the rows of the weight
  int64_t depth = 0;       // K
};

// The largest sizes: tokens in blocks of the smallest tile along grid.y, offsets in 31 bits.
inline constexpr int64_t kMaxBf16LinearTokens = 65535 * 8;
inline constexpr int64_t kMaxBf16LinearRows = 1 << 24;
inline constexpr int64_t kMaxBf16LinearDepth = 1 << 24;

struct Bf16LinearChoice {
  int32_t tactic = 0;  // index into kBf16LinearTactics
  int32_t splits = 1;  // blocks of a cluster that share an output tile's depth
};

inline constexpr int32_t kNumBf16LinearTactics =
    sizeof(kBf16LinearTactics) / sizeof(kBf16LinearTactics[0]);

// Blocks of the launch; a cluster's blocks are neighbours along x.
struct Bf16LinearGrid {
  uint32_t x = 0, y = 0, cluster_x = 1;
};

Bf16LinearGrid bf16_linear_grid(const Bf16LinearShape& shape, Bf16LinearChoice choice);

// The default: the smallest token tile that takes all tokens (128 beyond), its first tactic, and
// the most splits S with which the grid is at most 2 / S of a wave of one block per SM (S = 2: a
// wave) and each has a depth tile. Where shapes were measured, the rule's data names a tactic.
Bf16LinearChoice bf16_linear_pick(const Bf16LinearShape& shape, int sm_count);

// Its parts: the smallest token tile that takes all tokens (128 beyond), and the number of splits
// for a tactic.
int32_t bf16_linear_token_tile(int64_t num_tokens);
int32_t bf16_linear_pick_splits(const Bf16LinearShape& shape, int32_t tactic, int sm_count);

// The numbers of splits that a tactic can have (bf16_linear_splits_valid), as "1, 2, 3, 4".
std::string bf16_linear_splits_words(const Bf16LinearTactic& tactic);

// The device function of a tactic: "bf16_linear_r64_t8_k128_s6". Another number of token stages
// follows that of the weights ("_s8t4"), and sharers come last ("_m2").
std::string bf16_linear_entry(const Bf16LinearTactic& tactic);

}  // namespace sdm
