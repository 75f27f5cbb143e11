// How gx_gds is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/step/gx_gds/gx_gds_params.h"

namespace sdm {

StepGeometry gx_gds_geometry(const plancap::Target& target, const GxGdsParams& params);

}  // namespace sdm
