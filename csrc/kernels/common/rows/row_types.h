// How bank, snapshot and grad rows are stored. Explicit values: they travel in parameter blocks.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

enum class RowType : int32_t {
  kFloat32 = 1,
  kBFloat16 = 2,
  kFloat8E4M3 = 3,  // snapshots only; one f32 scale per row
  kInt4 = 4,        // snapshots only; two columns a byte, one f32 scale per row
};

}  // namespace sdm
