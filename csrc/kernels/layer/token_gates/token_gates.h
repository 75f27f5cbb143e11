// A token's gates from the projections of the layer's input.
#pragma once
#include "kernels/layer/token_gates/token_gates_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct TokenGatesArgs {
  TensorRef a;        // float32 or bfloat16 [B, T, H], a token's heads side by side
  TensorRef b;        // likewise
  TensorRef a_log;    // float32 or bfloat16 [H]
  TensorRef dt_bias;  // likewise
  TensorRef beta;     // float32 [B*H, T, 1], out
  TensorRef g;        // float32 [B*H, T, 1], out
  bool pdl = false;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void token_gates(plancap::Sink& sink, const TokenGatesArgs& args);

// The host twin.
void token_gates_host(const TokenGatesParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_token_gates_plan(const plancap::ParamView& view);

const plancap::KernelInfo& token_gates_info();

}  // namespace sdm
