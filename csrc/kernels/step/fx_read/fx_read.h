// The forward's first step: what the bank answers to a step's tokens before their writes.
#pragma once
#include <optional>

#include "kernels/step/fx_read/fx_read_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct FxReadArgs {
  TensorRef bank;         // bfloat16 or float32 [rows, hd]
  TensorRef v;            // [N*C, hd] or [N, C, hd] of the bank's dtype
  TensorRef row_weights;  // int32 [N*C, W+R, 2]: {bank row, bits of the f32 weight}
  TensorRef residual;     // float32 [N*C, hd] or [N, C, hd], out
  TensorRef reading;      // the same
  int64_t num_parallel = 0;
  int64_t chunk_size = 0;
  int64_t num_writes = 0;
  int64_t num_tokens = 0;        // T: tokens from here on are padding and give 0
  int64_t ti = 0;                // the step of this launch
  std::optional<int64_t> steps;  // steps a plan covers; none: only ti
  bool pdl = false;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void fx_read(plancap::Sink& sink, const FxReadArgs& args);

// The host twin.
void fx_read_host(const FxReadParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_fx_read_plan(const plancap::ParamView& view);

const plancap::KernelInfo& fx_read_info();

}  // namespace sdm
