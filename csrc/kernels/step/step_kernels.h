// The kernels of a chain by name.
#pragma once
#include <span>
#include <string_view>

#include "kernels/common/launch/step_kernel.h"

namespace sdm {

std::span<const StepKernel* const> step_kernels();

// Null when no step kernel has this name.
const StepKernel* find_step_kernel(std::string_view name);

}  // namespace sdm
