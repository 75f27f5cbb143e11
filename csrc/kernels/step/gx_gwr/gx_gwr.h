// Gather of the gradient rows of a step's written slots.
#pragma once
#include <optional>

#include "kernels/step/gx_gwr/gx_gwr_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct GxGwrArgs {
  TensorRef grad;   // bfloat16 or float32 [rows, hd]
  TensorRef delta;  // float32 [N*C, hd] or [N, C, hd]
  TensorRef pd;     // float32 [N*C, W]
  TensorRef slots;  // int32 [N*C, W], absolute bank rows; any valid row where padding
  TensorRef d_dv;   // float32 [N*C, hd] or [N, C, hd], out
  TensorRef dpd;    // float32 [num_slices, N*C*W], out; one slice: any shape
  int64_t num_parallel = 0;
  int64_t chunk_size = 0;
  int64_t num_tokens = 0;        // T: tokens from here on are padding and give 0
  int64_t ti = 0;                // the step of this launch
  std::optional<int64_t> steps;  // steps a plan covers; none: only ti
  bool pdl = false;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void gx_gwr(plancap::Sink& sink, const GxGwrArgs& args);

// The host twin.
void gx_gwr_host(const GxGwrParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_gx_gwr_plan(const plancap::ParamView& view);

const plancap::KernelInfo& gx_gwr_info();

}  // namespace sdm
