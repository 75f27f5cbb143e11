// How slot_select_grad is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/layer/slot_select_grad/slot_select_grad_params.h"

namespace sdm {

StepGeometry slot_select_grad_geometry(const plancap::Target& target,
                                       const SlotSelectGradParams& params);

}  // namespace sdm
