// Sizes of stored elements, and how many columns of a row one access of a thread may take.
#pragma once
#include "kernels/common/math/host_device.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

// Device code for rows of a type known only at run time, read element by element.
inline constexpr RowType kAnyRow = RowType{0};

SDM_HD constexpr int element_bits(RowType type) {
  switch (type) {
    case RowType::kBFloat16:
      return 16;
    case RowType::kFloat8E4M3:
      return 8;
    case RowType::kInt4:
      return 4;
    default:
      return 32;
  }
}

SDM_HD constexpr bool is_quantized(RowType type) {
  return type == RowType::kFloat8E4M3 || type == RowType::kInt4;
}

// Bytes of `columns` columns in the form that a thread holds them: decoded floats for kAnyRow.
SDM_HD constexpr uint32_t piece_bytes(RowType type, int columns) {
  return static_cast<uint32_t>(columns * element_bits(type) / 8);
}

}  // namespace sdm
