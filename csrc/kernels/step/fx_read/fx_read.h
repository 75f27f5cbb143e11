// The forward's first step: what the bank answers to a step's tokens before their writes.
#pragma once
#include "kernels/common/launch/step_kernel.h"
#include "kernels/step/fx_read/fx_read_params.h"

namespace sdm {

// The host twin.
void fx_read_host(const FxReadParams& params);

const plancap::KernelInfo& fx_read_info();

extern const StepKernel kFxRead;

}  // namespace sdm
