// The fixed-order FP32 GEMM of a step: d_u[n] += x[n]^T d_dv[n].
#pragma once
#include "kernels/common/launch/step_kernel.h"
#include "kernels/step/gx_gemm/gx_gemm_params.h"

namespace sdm {

// The host twin.
void gx_gemm_host(const GxGemmParams& params);

const plancap::KernelInfo& gx_gemm_info();

extern const StepKernel kGxGemm;

}  // namespace sdm
