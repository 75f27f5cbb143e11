// The gates of one token and head, for the host twin and the device kernel.
#pragma once
#include "kernels/layer/gate_math.h"
#include "kernels/layer/token_gates/token_gates_params.h"

namespace sdm {

SDM_HD void token_head_gates(const TokenGatesParams& params, GateToken at, int32_t head,
                             HeadGate gate) {
  const int64_t to = gate_place(params, at, head);
  params.beta[to] = sigmoid(strength_input(params, at, head));
  params.g[to] = times(gate.rate, softplus(step_input(params, at, head, gate.bias)));
}

}  // namespace sdm
