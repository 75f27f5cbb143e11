#include "kernels/linear/bf16_linear/bf16_linear_pick.h"

#include <algorithm>

#include "plancap/base/error.h"

namespace sdm {
namespace {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The first row of the table with this tile: the default. There is one for every tile.
int32_t find_tactic(int32_t tokens) {
  for (int32_t i = 0; i < kNumBf16LinearTactics; ++i) {
    if (kBf16LinearTactics[i].tokens == tokens) return i;
  }
  SDM_INTERNAL_CHECK(false, "bf16_linear has no tactic of ", tokens, " tokens");
  return 0;
}

int64_t num_blocks(const Bf16LinearShape& shape, Bf16LinearChoice choice) {
  const Bf16LinearGrid grid = bf16_linear_grid(shape, choice);
  return int64_t{grid.x} * grid.y;
}

}  // namespace

Bf16LinearGrid bf16_linear_grid(const Bf16LinearShape& shape, Bf16LinearChoice choice) {
  const Bf16LinearTactic& tactic = kBf16LinearTactics[choice.tactic];
  const uint32_t cluster = static_cast<uint32_t>(choice.splits * tactic.sharers);
  const int64_t cluster_rows = int64_t{tactic.rows} * tactic.sharers;
  return {static_cast<uint32_t>(ceil_div(shape.num_rows, cluster_rows)) * cluster,
          static_cast<uint32_t>(ceil_div(shape.num_tokens, tactic.tokens)), cluster};
}

std::string bf16_linear_splits_words(const Bf16LinearTactic& tactic) {
  std::string words;
  for (int32_t splits = 1; splits <= kBf16LinearMaxCluster; ++splits) {
    if (bf16_linear_splits_valid(tactic, splits)) words += cat(words.empty() ? "" : ", ", splits);
  }
  return words;
}

int32_t bf16_linear_token_tile(int64_t num_tokens) {
  int32_t tile = 8;
  while (tile < 128 && tile < num_tokens) tile *= 2;
  return tile;
}

int32_t bf16_linear_pick_splits(const Bf16LinearShape& shape, int32_t index, int sm_count) {
  const Bf16LinearTactic& tactic = kBf16LinearTactics[index];
  const int64_t tiles = ceil_div(shape.depth, tactic.depth);
  int32_t picked = 1;
  for (int32_t splits = 2; splits <= std::min<int64_t>(tiles, kBf16LinearMaxCluster); ++splits) {
    // Two blocks to a tile pay wherever they fit one wave; the exchange grows with their number,
    // and four paid only where they fit half a wave, so eight are asked to fit a quarter.
    if (num_blocks(shape, {index, splits}) * splits > 2 * sm_count) break;
    if (bf16_linear_splits_valid(tactic, splits)) picked = splits;
  }
  return picked;
}

Bf16LinearChoice bf16_linear_pick(const Bf16LinearShape& shape, int sm_count) {
  const int32_t tactic = find_tactic(bf16_linear_token_tile(shape.num_tokens));
  return {tactic, bf16_linear_pick_splits(shape, tactic, sm_count)};
}

std::string bf16_linear_entry(const Bf16LinearTactic& tactic) {
  std::string name = cat("bf16_linear_r", tactic.rows, "_t", tactic.tokens, "_k", tactic.depth,
                         "_s", tactic.stages);
  if (tactic.token_stages != tactic.stages) name += cat("t", tactic.token_stages);
  if (tactic.sharers != 1) name += cat("_m", tactic.sharers);
  return name;
}

}  // namespace sdm
