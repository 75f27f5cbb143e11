// The forward's last step: the writes of a step's tokens into the bank.
#pragma once
#include "kernels/common/launch/step_kernel.h"
#include "kernels/step/fx_write/fx_write_params.h"

namespace sdm {

// The host twin.
void fx_write_host(const FxWriteParams& params);

const plancap::KernelInfo& fx_write_info();

extern const StepKernel kFxWrite;

}  // namespace sdm
