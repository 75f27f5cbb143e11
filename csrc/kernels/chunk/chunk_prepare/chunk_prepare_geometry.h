// How chunk_prepare is launched on a device.
#pragma once
#include "kernels/chunk/chunk_prepare/chunk_prepare_params.h"
#include "kernels/common/launch/step_geometry.h"

namespace sdm {

StepGeometry chunk_prepare_geometry(const ChunkPrepareParams& params);

}  // namespace sdm
