// Which tactic serves a group, and its grid: pure functions of its sizes and the SM count.
#pragma once
#include <array>

#include "kernels/linear/bf16_linear/bf16_linear_pick.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_params.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_tactics.h"

namespace sdm {

struct Bf16LinearGroupShape {
  int64_t num_tokens = 0;                                 // M
  int64_t depth = 0;                                      // K
  int32_t num_members = 0;                                // of num_rows, those that count
  std::array<int64_t, kMaxBf16LinearMembers> num_rows{};  // N of each member
};

// Row tiles of the members before this one; with num_members, of all.
int64_t bf16_linear_group_first_tile(const Bf16LinearGroupShape& shape, int32_t tactic,
                                     int32_t member);

// The single weight with as many row tiles, which has the group's grid.
Bf16LinearShape bf16_linear_group_as_one(const Bf16LinearGroupShape& shape, int32_t tactic);

// Whether groups are compiled for this row of the tactic table.
bool bf16_linear_group_has(int32_t tactic);

// Their indices, as "0, 2, 3".
std::string bf16_linear_group_tactics_words();

// The default: the smallest token tile that takes all tokens (128 beyond), its first tactic, or,
// where a block for every output tile would not fit the SMs at once, the one of as many rows with
// two blocks an SM; and bf16_linear_pick's splits for all row tiles together.
Bf16LinearChoice bf16_linear_group_pick(const Bf16LinearGroupShape& shape, int sm_count);

// The device function of a tactic: "bf16_linear_group_r64_t8_k128_s6".
std::string bf16_linear_group_entry(int32_t tactic);

}  // namespace sdm
