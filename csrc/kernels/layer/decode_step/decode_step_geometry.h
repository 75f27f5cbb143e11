// How decode_step is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/layer/decode_step/decode_step_params.h"

namespace sdm {

StepGeometry decode_step_geometry(const plancap::Target& target, const DecodeStepParams& params);

// The launch of one device function, `columns` to a slice: of pieces of 16 bytes or, for any rows,
// element by element.
StepGeometry decode_step_geometry(const DecodeStepParams& params, bool pieces, int32_t columns);

// The slices there are device functions for.
std::span<const int32_t> decode_step_columns(bool pieces);

}  // namespace sdm
