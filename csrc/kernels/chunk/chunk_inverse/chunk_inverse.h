// X = (I + system)^-1 of every chunk, QX and X diag(beta): what the chains take.
#pragma once
#include <optional>

#include "kernels/chunk/chunk_inverse/chunk_inverse_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct ChunkInverseArgs {
  TensorRef system;  // float32 [N, C, C]: what lies below the diagonal is read, as pair_matrices
                     // has it
  TensorRef qk;      // float32 [N, C, C]: what lies on and below it; for qx alone
  TensorRef beta;    // float32, N*C elements
  // Both, or neither: without a backward nothing takes them.
  std::optional<TensorRef> x;   // float32 [N, C, C], out; zeros above the diagonal
  std::optional<TensorRef> qx;  // float32 [N, C, C], out: qk X; zeros above the diagonal
  TensorRef scaled;  // float32 [N, C, C], out: beta_j X[i, j] at [j, i]; zeros below the diagonal
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void chunk_inverse(plancap::Sink& sink, const ChunkInverseArgs& args);

// The host twin.
void chunk_inverse_host(const ChunkInverseParams& params);

const plancap::KernelInfo& chunk_inverse_info();

}  // namespace sdm
