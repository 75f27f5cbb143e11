// How pair_matrices is launched on a device.
#pragma once
#include "kernels/common/step_geometry.h"
#include "kernels/pair_matrices/pair_matrices_params.h"

namespace sdm {

StepGeometry pair_matrices_geometry(const PairMatricesParams& params);

}  // namespace sdm
