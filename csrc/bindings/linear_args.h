// The arguments of bf16_linear and bf16_linear_group as Python passes them.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "kernels/linear/bf16_linear/bf16_linear.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group.h"
#include "plancap/base/error.h"

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

// Every weight has its entry in `biases` and in `ys`.
inline Bf16LinearGroupArgs linear_group_args(const TensorRef& x,
                                             const std::vector<TensorRef>& weights,
                                             const std::vector<std::optional<TensorRef>>& biases,
                                             const std::vector<TensorRef>& ys, LinearChoice choice,
                                             bool pdl) {
  constexpr const char* kWhere = "bf16_linear_group";
  const auto one_each = [&](const char* argument, size_t count) {
    SDM_EXPECT(count == weights.size(), kValue, kWhere, argument,
               cat(weights.size(), ", one for each weight"), count);
  };
  one_each("biases", biases.size());
  one_each("ys", ys.size());
  Bf16LinearGroupArgs args;
  args.x = x;
  for (size_t i = 0; i < weights.size(); ++i) {
    args.members.push_back({weights[i], biases[i], ys[i]});
  }
  args.choice = to_choice(choice);
  args.pdl = pdl;
  return args;
}

}  // namespace sdm::bindings
