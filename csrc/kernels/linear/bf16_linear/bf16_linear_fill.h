// The parameter block of a launch, but for its tensor maps.
#pragma once
#include "kernels/linear/bf16_linear/bf16_linear_params.h"
#include "kernels/linear/bf16_linear/bf16_linear_pick.h"

namespace sdm {

// The addresses and row strides (in elements) of one call; bias may be null.
struct Bf16LinearOperands {
  const uint16_t* weight = nullptr;
  const uint16_t* x = nullptr;
  const uint16_t* bias = nullptr;
  uint16_t* y = nullptr;
  int64_t weight_stride = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
};

// How far a launch reaches into its neighbours' time, in depth tiles.
struct Bf16LinearOverlap {
  // Dependents start when all but this many token tiles are asked for. Earlier, their weights
  // compete with this launch's: a quarter slower at N, K = 2112, 7168 on an H200 (DESIGN.md).
  int32_t trigger_lead = 2;
  int32_t prefetch_tiles = 0;  // weight tiles past the ring that go into L2 ahead of the tokens
};

inline Bf16LinearParams bf16_linear_fill(const Bf16LinearOperands& operands,
                                         const Bf16LinearShape& shape, Bf16LinearChoice choice,
                                         Bf16LinearOverlap overlap = {}) {
  Bf16LinearParams params{};
  params.weight = operands.weight;
  params.x = operands.x;
  params.bias = operands.bias;
  params.y = operands.y;
  params.weight_stride = operands.weight_stride;
  params.x_stride = operands.x_stride;
  params.y_stride = operands.y_stride;
  params.num_rows = static_cast<int32_t>(shape.num_rows);
  params.num_tokens = static_cast<int32_t>(shape.num_tokens);
  params.depth = static_cast<int32_t>(shape.depth);
  const int32_t tile = kBf16LinearTactics[choice.tactic].depth;
  params.depth_tiles = static_cast<int32_t>((shape.depth + tile - 1) / tile);
  params.splits = choice.splits;
  params.split_inverse = bf16_linear_inverse(choice.splits);
  const bool even_address = reinterpret_cast<uintptr_t>(operands.y) % 4 == 0;
  params.paired_store = even_address && operands.y_stride % 2 == 0;
  params.tactic = choice.tactic;
  params.trigger_lead = overlap.trigger_lead;
  params.prefetch_tiles = overlap.prefetch_tiles;
  return params;
}

}  // namespace sdm
