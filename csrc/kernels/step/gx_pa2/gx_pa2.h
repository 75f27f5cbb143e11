// Write side of a step: walks the sorted write entries, restores the bank, advances the grad rows.
#pragma once
#include "kernels/common/launch/step_kernel.h"
#include "kernels/step/gx_pa2/gx_pa2_params.h"

namespace sdm {

// The host twin.
void gx_pa2_host(const GxPa2Params& params);

// What the table does not say: the two layouts of the snapshots and their row types.
void complete_snapshots(const StepLaunch& launch);
void check_snapshots(const plancap::ParamView& view);

const plancap::KernelInfo& gx_pa2_info();

extern const StepKernel kGxPa2;

}  // namespace sdm
