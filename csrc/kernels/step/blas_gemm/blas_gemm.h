// The library step: the call that torch.baddbmm(d_u, x.transpose(1, 2), d_dv, out=d_u) makes, so
// that the bits are torch's own. CUDA only.
#pragma once
#include "kernels/step/blas_gemm/blas_gemm_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct BlasGemmArgs {
  TensorRef d_u;   // float32 [N, C, hd], in place
  TensorRef x;     // float32 [N, C, C]
  TensorRef d_dv;  // float32 [N*C, hd] or [N, C, hd]
  int64_t num_parallel = 0;
  int64_t steps = 0;  // steps the plan covers
};

// Checks the arguments and hands over one library call; only a plan sink of a CUDA device takes it.
void blas_gemm(plancap::Sink& sink, const BlasGemmArgs& args);

// Issues the call on the handle's stream; else why not.
plancap::LibraryFailure blas_gemm_call(const BlasGemmParams& params, void* handle);

// Throws kPlan when a plan's numbers reach past its operands.
void check_blas_gemm_plan(const plancap::ParamView& view);

const plancap::KernelInfo& blas_gemm_info();

}  // namespace sdm
