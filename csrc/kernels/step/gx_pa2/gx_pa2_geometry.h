// How gx_pa2 is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/step/gx_pa2/gx_pa2_params.h"

namespace sdm {

StepGeometry gx_pa2_geometry(const plancap::Target& target, const GxPa2Params& params);

}  // namespace sdm
