// How token_gates is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/layer/token_gates/token_gates_params.h"

namespace sdm {

StepGeometry token_gates_geometry(const TokenGatesParams& params);

}  // namespace sdm
