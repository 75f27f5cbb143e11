// Read side of a step: the reads' dots with the restored rows, and their gradient into the rows.
#pragma once
#include "kernels/common/launch/step_kernel.h"
#include "kernels/step/gx_gds/gx_gds_params.h"

namespace sdm {

// The host twin.
void gx_gds_host(const GxGdsParams& params);

const plancap::KernelInfo& gx_gds_info();

extern const StepKernel kGxGds;

}  // namespace sdm
