// How token_gradients is launched on a device.
#pragma once
#include "kernels/common/step_geometry.h"
#include "kernels/token_gradients/token_gradients_params.h"

namespace sdm {

StepGeometry token_gradients_geometry(const TokenGradientsParams& params);

}  // namespace sdm
