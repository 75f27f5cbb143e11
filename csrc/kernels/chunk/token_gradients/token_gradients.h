// The gradients of v and beta from what the step chain leaves, token by token.
#pragma once
#include "kernels/chunk/token_gradients/token_gradients_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct TokenGradientsArgs {
  TensorRef d_u;           // float32 [N, C, hd]
  TensorRef innovation;    // float32 [N, C, hd]: v minus the bank's answer at the token
  TensorRef beta;          // float32, N*C elements
  TensorRef dv;            // float32 or bfloat16 [P, T, hd] or [B, T, H, hd] with P = B*H, out
  TensorRef dbeta;         // float32 or bfloat16 [P, T, 1], out
  int64_t first_step = 0;  // of the N chunks
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void token_gradients(plancap::Sink& sink, const TokenGradientsArgs& args);

// The host twin.
void token_gradients_host(const TokenGradientsParams& params);

const plancap::KernelInfo& token_gradients_info();

}  // namespace sdm
