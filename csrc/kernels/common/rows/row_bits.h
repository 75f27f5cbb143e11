// Sizes of stored elements, and how many columns of a row one access of a thread may take.
#pragma once
#include <bit>

#include "kernels/common/math/host_device.h"
#include "kernels/common/rows/row_formats.h"

namespace sdm {

// Device code for rows of a type known only at run time, read element by element.
inline constexpr RowType kAnyRow = RowType{0};

SDM_HD constexpr int element_bits(RowType type) {
  return with_row_format(type, [](auto format) SDM_INLINE_LAMBDA { return format.kBits; });
}

SDM_HD constexpr bool is_quantized(RowType type) {
  return type != kAnyRow &&
         with_row_format(type, [](auto format) SDM_INLINE_LAMBDA { return format.kScaled; });
}

SDM_HD constexpr int codes_per_byte(RowType type) {
  return with_row_format(
      type, [](auto format) SDM_INLINE_LAMBDA { return kCodesPerByte<decltype(format)>; });
}

// How often four bytes are halved for a column of each type, four bits a type: twins ask for the
// size of a row's parts in every loop, and this needs no load.
inline constexpr uint64_t kHalvings = [] {
  uint64_t packed = 0;
  for (const RowType type : kRowTypes) {
    const auto ratio = static_cast<uint32_t>(32 / element_bits(type));
    packed |= static_cast<uint64_t>(std::countr_zero(ratio)) << 4 * static_cast<int>(type);
  }
  return packed;
}();

// The bytes of a row of `columns` columns, or of that many columns of one: whole bytes of those
// that share one.
SDM_HD int64_t row_bytes(RowType type, int64_t columns) {
  return 4 * columns >> (kHalvings >> 4 * static_cast<int>(type) & 15);
}

// Bytes of `columns` columns in the form that a thread holds them: decoded floats for kAnyRow.
SDM_HD constexpr uint32_t piece_bytes(RowType type, int columns) {
  return static_cast<uint32_t>(columns * (type == kAnyRow ? 32 : element_bits(type)) / 8);
}

}  // namespace sdm
