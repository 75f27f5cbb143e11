// The arguments of bf16_linear as Python passes them.
#pragma once
#include <optional>
#include <utility>

#include "kernels/linear/bf16_linear/bf16_linear.h"

namespace sdm::bindings {

// A tactic's index and the number of depth splits; both absent for the default pick.
using LinearChoice = std::optional<std::pair<int32_t, int32_t>>;

inline std::optional<Bf16LinearChoice> to_choice(LinearChoice choice) {
  if (!choice) return std::nullopt;
  return Bf16LinearChoice{choice->first, choice->second};
}

inline Bf16LinearArgs linear_args(const TensorRef& x, const TensorRef& weight,
                                  const std::optional<TensorRef>& bias, const TensorRef& y,
                                  LinearChoice choice, bool pdl) {
  Bf16LinearArgs args;
  args.x = x;
  args.weight = weight;
  args.bias = bias;
  args.y = y;
  args.choice = to_choice(choice);
  args.pdl = pdl;
  return args;
}

}  // namespace sdm::bindings
