// A token's gradients and the order of a head's sums, for the host twin and the device kernel.
#pragma once
#include "kernels/layer/gate_math.h"
#include "kernels/layer/token_gates_grad/token_gates_grad_params.h"

namespace sdm {

// A head's sums have 8192 lanes in 8 groups: lane l adds tokens l, l + 8192, .. of the B*T in
// order; a balanced tree over a group's lanes (neighbours first) makes the group's part, one over
// the groups the sum. Lanes without a token are +0.
inline constexpr int32_t kSumGroups = 8;
inline constexpr int32_t kGroupLanes = 1024;
inline constexpr int64_t kSumLanes = int64_t{kSumGroups} * kGroupLanes;

// Of a head, before the factor -exp(A_log) that its tokens share.
struct GateSums {
  float a_log = 0.0f;    // sum of d_g * softplus(a + dt_bias)
  float dt_bias = 0.0f;  // sum of d_g * sigmoid(a + dt_bias)
};

SDM_HD GateSums plus(GateSums x, GateSums y) {
  return {plus(x.a_log, y.a_log), plus(x.dt_bias, y.dt_bias)};
}

// sigmoid(x) * (1 - sigmoid(x)) as exp(-|x|) / (1 + exp(-|x|))^2, in which nothing cancels.
SDM_HD float sigmoid_slope(float x) {
  const float small = exponential(x < 0.0f ? x : -x);
  const float whole = plus(1.0f, small);
  return divided(small, times(whole, whole));
}

// Writes the gradients of a and b at a token; returns `sums` with its terms.
SDM_HD GateSums add_token(const TokenGatesGradParams& params, uint32_t flat, int32_t head,
                          HeadGate gate, GateSums sums) {
  const GateToken at = gate_token(params, flat);
  const int64_t from = gate_place(params, at, head);
  const int64_t to = int64_t{flat} * params.num_heads + head;
  const float d_beta = params.d_beta[from], d_g = params.d_g[from];
  const float step = step_input(params, at, head, gate.bias), slope = sigmoid(step);
  const float strength = strength_input(params, at, head);
  store_value(params.d_a, params.a_type, to, times(times(gate.rate, d_g), slope));
  store_value(params.d_b, params.b_type, to, times(d_beta, sigmoid_slope(strength)));
  return {fused(d_g, softplus(step), sums.a_log), fused(d_g, slope, sums.dt_bias)};
}

// The tree over a head's groups, and the shared factor.
SDM_HD void store_sums(const TokenGatesGradParams& params, int32_t head, HeadGate gate,
                       const GateSums (&groups)[kSumGroups]) {
  static_assert(kSumGroups == 8);
  const GateSums low = plus(plus(groups[0], groups[1]), plus(groups[2], groups[3]));
  const GateSums high = plus(plus(groups[4], groups[5]), plus(groups[6], groups[7]));
  const GateSums sum = plus(low, high);
  store_value(params.d_a_log, params.a_log_type, head, times(gate.rate, sum.a_log));
  store_value(params.d_dt_bias, params.dt_bias_type, head, times(gate.rate, sum.dt_bias));
}

}  // namespace sdm
