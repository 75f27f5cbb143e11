// Kernels by name. Filled once, when the extension loads; read without a lock afterwards.
#pragma once
#include <string_view>
#include <vector>

#include "plancap/format/kernel_info.h"

namespace sdm::plancap {

// Throws kInternal for a name that is already taken or a field table that does not fit its struct.
void register_kernel(const KernelInfo& info);

// Null when no kernel has this name.
const KernelInfo* find_kernel(std::string_view name);

std::vector<const KernelInfo*> all_kernels();

}  // namespace sdm::plancap
