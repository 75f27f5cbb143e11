// The parameter block of a launch, but for its tensor maps.
#pragma once
#include "kernels/linear/bf16_linear/bf16_linear_fill.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_pick.h"

namespace sdm {

// The addresses and row strides (in elements) of one call; a bias may be null. A member's y has
// rows of N elements.
struct Bf16LinearGroupOperands {
  struct Member {
    const uint16_t* weight = nullptr;
    const uint16_t* bias = nullptr;
    uint16_t* y = nullptr;
    int64_t weight_stride = 0;
  };
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  std::array<Member, kMaxBf16LinearMembers> members{};
};

inline Bf16LinearGroupParams bf16_linear_group_fill(const Bf16LinearGroupOperands& operands,
                                                    const Bf16LinearGroupShape& shape,
                                                    Bf16LinearChoice choice,
                                                    Bf16LinearOverlap overlap = {}) {
  Bf16LinearGroupParams params{};
  params.x = operands.x;
  params.x_stride = operands.x_stride;
  params.num_members = shape.num_members;
  params.num_tokens = static_cast<int32_t>(shape.num_tokens);
  params.depth = static_cast<int32_t>(shape.depth);
  const int32_t depth_tile = kBf16LinearTactics[choice.tactic].depth;
  params.depth_tiles = static_cast<int32_t>((shape.depth + depth_tile - 1) / depth_tile);
  params.splits = choice.splits;
  params.split_inverse = bf16_linear_inverse(choice.splits);
  params.tactic = choice.tactic;
  params.trigger_lead = overlap.trigger_lead;
  params.prefetch_tiles = overlap.prefetch_tiles;
  for (int32_t i = 0; i < kMaxBf16LinearMembers; ++i) {
    params.first_tile[i] = kNoRowTile;
    if (i >= shape.num_members) continue;
    const Bf16LinearGroupOperands::Member& member = operands.members[i];
    params.weight[i] = member.weight;
    params.bias[i] = member.bias;
    params.y[i] = member.y;
    params.weight_stride[i] = member.weight_stride;
    params.num_rows[i] = static_cast<int32_t>(shape.num_rows[i]);
    params.first_tile[i] =
        static_cast<int32_t>(bf16_linear_group_first_tile(shape, choice.tactic, i));
    const bool even_address = reinterpret_cast<uintptr_t>(member.y) % 4 == 0;
    const bool paired = even_address && shape.num_rows[i] % 2 == 0;
    params.paired_stores |= static_cast<int32_t>(paired) << i;
  }
  return params;
}

}  // namespace sdm
