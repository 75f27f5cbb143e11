// Which passes of chunk_gradients a target takes, and how one is launched on a device.
#pragma once
#include <vector>

#include "kernels/chunk/chunk_gradients/chunk_gradients_params.h"
#include "kernels/common/launch/step_geometry.h"

namespace sdm {

std::vector<GradientPass> chunk_gradients_passes(const plancap::Target& target,
                                                 const ChunkGradientsParams& params);

StepGeometry chunk_gradients_geometry(const plancap::Target& target,
                                      const ChunkGradientsParams& params, GradientPass pass);

}  // namespace sdm
