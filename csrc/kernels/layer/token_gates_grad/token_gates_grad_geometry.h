// How token_gates_grad is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/layer/token_gates_grad/token_gates_grad_params.h"

namespace sdm {

StepGeometry token_gates_grad_geometry(const plancap::Target& target,
                                       const TokenGatesGradParams& params);

}  // namespace sdm
