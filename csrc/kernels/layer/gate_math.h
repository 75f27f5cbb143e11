// A token's gates: beta = sigmoid(b) and g = -exp(A_log) * softplus(a + dt_bias), and what both
// passes read of them. For any parameter block with the members that are named here.
#pragma once
#include "kernels/common/math/elementary.h"
#include "kernels/common/rows/typed_values.h"

namespace sdm {

// What the tokens of a head share.
struct HeadGate {
  float rate;  // -exp(A_log)
  float bias;  // dt_bias
};

template <typename Params>
SDM_HD HeadGate head_gate(const Params& params, int32_t head) {
  const float a_log = load_value(params.a_log, params.a_log_type, head);
  return {-exponential(a_log), load_value(params.dt_bias, params.dt_bias_type, head)};
}

// A token of the call: [b, t] of [B, T]; `flat` is b*T + t.
struct GateToken {
  int64_t batch, token;
};

template <typename Params>
SDM_HD GateToken gate_token(const Params& params, uint32_t flat) {
  const uint32_t tokens = static_cast<uint32_t>(params.num_tokens);
  const uint32_t batch = flat / tokens;
  return {batch, flat - batch * tokens};
}

// a + dt_bias.
template <typename Params>
SDM_HD float step_input(const Params& params, GateToken at, int32_t head, float bias) {
  const int64_t from = at.batch * params.a_batch_stride + at.token * params.a_token_stride + head;
  return plus(load_value(params.a, params.a_type, from), bias);
}

template <typename Params>
SDM_HD float strength_input(const Params& params, GateToken at, int32_t head) {
  const int64_t from = at.batch * params.b_batch_stride + at.token * params.b_token_stride + head;
  return load_value(params.b, params.b_type, from);
}

// In a tensor [B*H, T].
template <typename Params>
SDM_HD int64_t gate_place(const Params& params, GateToken at, int32_t head) {
  return (at.batch * params.num_heads + head) * params.num_tokens + at.token;
}

}  // namespace sdm
