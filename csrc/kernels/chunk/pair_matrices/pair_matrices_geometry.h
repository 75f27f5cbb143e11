// How pair_matrices is launched on a device.
#pragma once
#include "kernels/chunk/pair_matrices/pair_matrices_params.h"
#include "kernels/common/launch/step_geometry.h"

namespace sdm {

StepGeometry pair_matrices_geometry(const PairMatricesParams& params);

}  // namespace sdm
