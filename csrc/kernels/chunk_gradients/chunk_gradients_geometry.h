// How a pass of chunk_gradients is launched on a device.
#pragma once
#include "kernels/chunk_gradients/chunk_gradients_params.h"
#include "kernels/common/step_geometry.h"

namespace sdm {

StepGeometry chunk_gradients_geometry(const ChunkGradientsParams& params, GradientPass pass);

}  // namespace sdm
