// From the operation's readings to the output projection's input, for calls without gradient.
#pragma once
#include <optional>

#include "kernels/layer/merge_readings/merge_readings_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct MergeReadingsArgs {
  TensorRef readings;  // float32 or bfloat16 [B, T, H, hd], a head's columns side by side
  std::optional<TensorRef> norm_weight;  // float32 or bfloat16 [hd]; both or none
  std::optional<TensorRef> norm_bias;    // of the same dtype
  std::optional<TensorRef> gate;         // float32 or bfloat16 [B, T, H*hd], a token's side by side
  TensorRef merged;                      // float32 or bfloat16 [B, T, H*hd], contiguous, out
  double eps = 0.0;                      // positive, with a norm
  bool pdl = false;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void merge_readings(plancap::Sink& sink, const MergeReadingsArgs& args);

// The host twin.
void merge_readings_host(const MergeReadingsParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_merge_readings_plan(const plancap::ParamView& view);

const plancap::KernelInfo& merge_readings_info();

}  // namespace sdm
