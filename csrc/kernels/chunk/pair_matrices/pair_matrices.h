// The matrices A and QK of every chunk: what tokens share through the slots they write and read.
#pragma once
#include <optional>

#include "kernels/chunk/pair_matrices/pair_matrices_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct PairMatricesArgs {
  TensorRef events;            // float64 [N, C*(W+R), 2], as chunk_prepare leaves them
  TensorRef places;            // int32 [N, C*(W+R)], likewise
  TensorRef beta_rows;         // float32 [N*C], likewise
  std::optional<TensorRef> a;  // float32 [N, C, C], out
  TensorRef system;            // float32 [N, C, C], out: diag(beta) A
  TensorRef qk;                // float32 [N, C, C], out
  int64_t num_writes = 0;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void pair_matrices(plancap::Sink& sink, const PairMatricesArgs& args);

// The host twin.
void pair_matrices_host(const PairMatricesParams& params);

const plancap::KernelInfo& pair_matrices_info();

}  // namespace sdm
