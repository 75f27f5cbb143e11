// How plane_reduce is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/rows/plane_reduce/plane_reduce_params.h"

namespace sdm {

StepGeometry plane_reduce_geometry(const PlaneReduceParams& params);

}  // namespace sdm
