// How chunk_readings is launched on a device.
#pragma once
#include "kernels/chunk/chunk_readings/chunk_readings_params.h"
#include "kernels/common/launch/step_geometry.h"

namespace sdm {

StepGeometry chunk_readings_geometry(const plancap::Target& target,
                                     const ChunkReadingsParams& params);

}  // namespace sdm
