// Elements of the caller's tensors: float32 or bfloat16 values, int32 or int64 indices.
#pragma once
#include "kernels/common/math/bf16.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

SDM_HD float load_value(const void* values, RowType type, int64_t at) {
  return type == RowType::kFloat32 ? static_cast<const float*>(values)[at]
                                   : bf16_to_float(static_cast<const uint16_t*>(values)[at]);
}

SDM_HD void store_value(void* values, RowType type, int64_t at, float value) {
  if (type == RowType::kFloat32) {
    static_cast<float*>(values)[at] = value;
  } else {
    static_cast<uint16_t*>(values)[at] = float_to_bf16(value);
  }
}

// `wide`: int64. Bank rows fit an int32.
SDM_HD int32_t load_index(const void* indices, int32_t wide, int64_t at) {
  return wide != 0 ? static_cast<int32_t>(static_cast<const int64_t*>(indices)[at])
                   : static_cast<const int32_t*>(indices)[at];
}

}  // namespace sdm
