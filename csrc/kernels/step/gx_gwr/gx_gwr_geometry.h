// How gx_gwr is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/step/gx_gwr/gx_gwr_params.h"

namespace sdm {

StepGeometry gx_gwr_geometry(const plancap::Target& target, const GxGwrParams& params);

}  // namespace sdm
