// The slices' planes of one float per entry added in slice order, times a factor.
#pragma once
#include <optional>

#include "kernels/rows/plane_reduce/plane_reduce_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct PlaneReduceArgs {
  TensorRef planes;  // float32 [num_slices, N*C*width]; width = W or R entries per token
  TensorRef out;     // float32, N*C*width elements of any shape; apart from planes
  std::optional<TensorRef> factor;  // float32, N*C*width / group elements of any shape
  bool negate = false;              // multiply by -factor
  int64_t group = 1;                // entries that share one factor
  int64_t num_tokens = 0;           // T: entries of tokens from here on become 0
  int64_t num_parallel = 0;
  int64_t chunk_size = 0;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void plane_reduce(plancap::Sink& sink, const PlaneReduceArgs& args);

// The host twin.
void plane_reduce_host(const PlaneReduceParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_plane_reduce_plan(const plancap::ParamView& view);

const plancap::KernelInfo& plane_reduce_info();

}  // namespace sdm
