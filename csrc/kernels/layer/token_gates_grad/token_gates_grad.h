// The backward of token_gates.
#pragma once
#include "kernels/layer/token_gates_grad/token_gates_grad_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct TokenGatesGradArgs {
  TensorRef d_beta;     // float32 [B*H, T, 1]
  TensorRef d_g;        // float32 [B*H, T, 1]
  TensorRef a;          // float32 or bfloat16 [B, T, H], a token's heads side by side
  TensorRef b;          // likewise
  TensorRef a_log;      // float32 or bfloat16 [H]
  TensorRef dt_bias;    // likewise
  TensorRef d_a;        // a's dtype [B, T, H], contiguous, out; as are the rest
  TensorRef d_b;        // b's
  TensorRef d_a_log;    // A_log's [H]
  TensorRef d_dt_bias;  // dt_bias's [H]
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void token_gates_grad(plancap::Sink& sink, const TokenGatesGradArgs& args);

// The host twin.
void token_gates_grad_host(const TokenGatesGradParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_token_gates_grad_plan(const plancap::ParamView& view);

const plancap::KernelInfo& token_gates_grad_info();

}  // namespace sdm
