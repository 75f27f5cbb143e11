// How step_lists is launched on a device.
#pragma once
#include "kernels/common/step_geometry.h"
#include "kernels/step_lists/step_lists_params.h"

namespace sdm {

StepGeometry step_lists_geometry(const StepListsParams& params);

}  // namespace sdm
