// The gradients of k, q and g from what the step chain leaves, chunk by chunk.
#pragma once
#include <optional>

#include "kernels/chunk/chunk_gradients/chunk_gradients_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct ChunkGradientsArgs {
  TensorRef events;                // float64 [N, E, 2], as chunk_prepare leaves them; E = C*(W+R)
  TensorRef beta;                  // float32 [N*C], staged
  TensorRef d_m;                   // float32 [N, C, C]: d_u delta^T
  TensorRef d_qk;                  // float32 [N, C, C]: gy delta^T
  TensorRef dpd;                   // float32, N*C*W elements, staged: the chain's row dots
  TensorRef dkeff;                 // as dpd
  TensorRef d_total;               // as dpd
  TensorRef dqeff;                 // float32, N*C*R elements
  TensorRef terms;                 // float64 [N, E, 2], scratch
  std::optional<TensorRef> gates;  // float64 [N*C, W], scratch: for a g of [P, T, 1]
  TensorRef dk;                    // float32 or bfloat16 [P, T, W], out
  TensorRef dq;                    // [P, T, R], out
  TensorRef dg;                    // [P, T, 1] or [P, T, W], out
  int64_t chunk_size = 0;
  int64_t first_step = 0;  // of the N chunks
};

// Checks the arguments, chooses passes and geometries for the sink's target and hands over a launch
// a pass: for a sink that launches them.
void chunk_gradients(plancap::Sink& sink, const ChunkGradientsArgs& args);

// A pass' host twin.
void chunk_gradients_host(const ChunkGradientsParams& params, GradientPass pass);

// The passes have one parameter block, and host twins of their own.
const plancap::KernelInfo& chunk_gradients_info(GradientPass pass);

}  // namespace sdm
