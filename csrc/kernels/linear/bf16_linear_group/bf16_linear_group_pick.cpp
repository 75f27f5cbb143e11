#include "kernels/linear/bf16_linear_group/bf16_linear_group_pick.h"

#include <algorithm>
#include <string_view>

#include "plancap/base/error.h"

namespace sdm {
namespace {

constexpr std::string_view kSingle = "bf16_linear";

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr bool group_tactics_exist() {
  for (const int32_t tactic : kBf16LinearGroupTactics) {
    if (tactic < 0 || tactic >= kNumBf16LinearTactics) return false;
  }
  return true;
}
static_assert(group_tactics_exist());

// Whether a block for every output tile has a place at once.
bool fits_at_once(const Bf16LinearGroupShape& shape, int32_t tactic, int sm_count) {
  const Bf16LinearGrid grid =
      bf16_linear_grid(bf16_linear_group_as_one(shape, tactic), {tactic, 1});
  const int places = sm_count * bf16_linear_blocks_per_sm(kBf16LinearTactics[tactic]);
  return int64_t{grid.x} * grid.y <= places;
}

}  // namespace

int64_t bf16_linear_group_first_tile(const Bf16LinearGroupShape& shape, int32_t tactic,
                                     int32_t member) {
  int64_t tiles = 0;
  for (int32_t i = 0; i < member; ++i) {
    tiles += ceil_div(shape.num_rows[i], kBf16LinearTactics[tactic].rows);
  }
  return tiles;
}

Bf16LinearShape bf16_linear_group_as_one(const Bf16LinearGroupShape& shape, int32_t tactic) {
  const int64_t tiles = bf16_linear_group_first_tile(shape, tactic, shape.num_members);
  return {shape.num_tokens, tiles * kBf16LinearTactics[tactic].rows, shape.depth};
}

bool bf16_linear_group_has(int32_t tactic) {
  return std::ranges::find(kBf16LinearGroupTactics, tactic) != std::end(kBf16LinearGroupTactics);
}

std::string bf16_linear_group_tactics_words() {
  std::string words;
  for (const int32_t tactic : kBf16LinearGroupTactics) {
    words += cat(words.empty() ? "" : ", ", tactic);
  }
  return words;
}

Bf16LinearChoice bf16_linear_group_pick(const Bf16LinearGroupShape& shape, int sm_count) {
  const int32_t tokens = bf16_linear_token_tile(shape.num_tokens);
  const auto has_tile = [&](int32_t i) { return kBf16LinearTactics[i].tokens == tokens; };
  const auto* first = std::ranges::find_if(kBf16LinearGroupTactics, has_tile);
  SDM_INTERNAL_CHECK(first != std::end(kBf16LinearGroupTactics),
                     "bf16_linear_group has no tactic of ", tokens, " tokens");
  int32_t tactic = *first;
  const Bf16LinearTactic& rows_of = kBf16LinearTactics[tactic];
  const int per_sm = bf16_linear_blocks_per_sm(rows_of);
  if (!fits_at_once(shape, tactic, sm_count)) {
    for (const int32_t other : kBf16LinearGroupTactics) {
      const Bf16LinearTactic& given = kBf16LinearTactics[other];
      if (has_tile(other) && given.rows == rows_of.rows &&
          bf16_linear_blocks_per_sm(given) > per_sm) {
        tactic = other;
        break;
      }
    }
  }
  const Bf16LinearShape as_one = bf16_linear_group_as_one(shape, tactic);
  return {tactic, bf16_linear_pick_splits(as_one, tactic, sm_count)};
}

std::string bf16_linear_group_entry(int32_t tactic) {
  const std::string single = bf16_linear_entry(kBf16LinearTactics[tactic]);
  return cat(kSingle, "_group", single.substr(kSingle.size()));
}

}  // namespace sdm
