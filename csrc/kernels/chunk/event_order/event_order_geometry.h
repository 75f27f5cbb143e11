// How event_order is launched on a device.
#pragma once
#include "kernels/chunk/event_order/event_order_params.h"
#include "kernels/common/launch/step_geometry.h"

namespace sdm {

// One of:
// event_order_b6, _b7, _b8: key and place share 32 bits, in shared memory; digits of so many bits.
// event_order_wide: they take 64 bits.
// event_order_global: two lists of words do not fit shared memory.
StepGeometry event_order_geometry(const plancap::Target& target, const EventOrderParams& params);

}  // namespace sdm
