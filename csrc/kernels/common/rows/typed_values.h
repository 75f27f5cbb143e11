// Elements of the caller's tensors: float32 or bfloat16 values, int32 or int64 indices.
#pragma once
#include "kernels/common/math/bf16.h"
#include "kernels/common/rows/row_formats.h"

namespace sdm {

SDM_HD float load_value(const void* values, RowType type, int64_t at) {
  return with_plain_format(type, [&](auto format) SDM_INLINE_LAMBDA {
    return format.decode(static_cast<const StoredBits<decltype(format)>*>(values)[at]);
  });
}

SDM_HD void store_value(void* values, RowType type, int64_t at, float value) {
  with_plain_format(type, [&](auto format) SDM_INLINE_LAMBDA {
    using Bits = StoredBits<decltype(format)>;
    static_cast<Bits*>(values)[at] = static_cast<Bits>(format.encode(value));
  });
}

// `wide`: int64. Bank rows fit an int32.
SDM_HD int32_t load_index(const void* indices, int32_t wide, int64_t at) {
  return wide != 0 ? static_cast<int32_t>(static_cast<const int64_t*>(indices)[at])
                   : static_cast<const int32_t*>(indices)[at];
}

}  // namespace sdm
