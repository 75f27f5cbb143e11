// How chunk_inverse is launched on a device.
#pragma once
#include "kernels/chunk/chunk_inverse/chunk_inverse_params.h"
#include "kernels/common/launch/step_geometry.h"

namespace sdm {

StepGeometry chunk_inverse_geometry(const ChunkInverseParams& params);

}  // namespace sdm
