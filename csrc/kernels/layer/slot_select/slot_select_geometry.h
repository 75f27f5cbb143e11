// How slot_select is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/layer/slot_select/slot_select_params.h"

namespace sdm {

StepGeometry slot_select_geometry(const plancap::Target& target, const SlotSelectParams& params);

}  // namespace sdm
