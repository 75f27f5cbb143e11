// Gather of the gradient rows of a step's written slots.
#pragma once
#include "kernels/common/launch/step_kernel.h"
#include "kernels/step/gx_gwr/gx_gwr_params.h"

namespace sdm {

// The host twin.
void gx_gwr_host(const GxGwrParams& params);

const plancap::KernelInfo& gx_gwr_info();

extern const StepKernel kGxGwr;

}  // namespace sdm
