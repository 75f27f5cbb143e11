// How fx_read is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/step/fx_read/fx_read_params.h"

namespace sdm {

StepGeometry fx_read_geometry(const plancap::Target& target, const FxReadParams& params);

}  // namespace sdm
