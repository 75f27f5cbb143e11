// The fixed-order FP32 GEMM of a step: d_u[n] += x[n]^T d_dv[n].
#pragma once
#include <optional>

#include "kernels/step/gx_gemm/gx_gemm_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct GxGemmArgs {
  TensorRef d_u;   // float32 [N, C, hd], in place
  TensorRef x;     // float32 [N, C, C]
  TensorRef d_dv;  // float32 [N*C, hd] or [N, C, hd]
  int64_t num_parallel = 0;
  int64_t ti = 0;                // the step of this launch
  std::optional<int64_t> steps;  // steps a plan covers; none: only ti
  bool pdl = false;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void gx_gemm(plancap::Sink& sink, const GxGemmArgs& args);

// The host twin.
void gx_gemm_host(const GxGemmParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_gx_gemm_plan(const plancap::ParamView& view);

const plancap::KernelInfo& gx_gemm_info();

}  // namespace sdm
