// How fx_write is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/step/fx_write/fx_write_params.h"

namespace sdm {

StepGeometry fx_write_geometry(const plancap::Target& target, const FxWriteParams& params);

}  // namespace sdm
