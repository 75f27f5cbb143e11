// How gx_gemm is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/step/gx_gemm/gx_gemm_params.h"

namespace sdm {

StepGeometry gx_gemm_geometry(const plancap::Target& target, const GxGemmParams& params);

}  // namespace sdm
