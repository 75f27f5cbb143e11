// How token_gradients is launched on a device.
#pragma once
#include "kernels/chunk/token_gradients/token_gradients_params.h"
#include "kernels/common/launch/step_geometry.h"

namespace sdm {

StepGeometry token_gradients_geometry(const TokenGradientsParams& params);

}  // namespace sdm
