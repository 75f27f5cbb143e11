// gx_gwr's block and shared memory.
#pragma once
#include "kernels/common/rows/gather_shape.h"

namespace sdm {

inline constexpr GatherShape kGwrShape{128, 8, 8 * 1024};

}  // namespace sdm
