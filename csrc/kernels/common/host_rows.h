// Rows on the host: a stretch of a row's columns as f32, whatever type it is stored in, and back.
// Everything is always_inline, so that it is compiled for the instruction set of its caller.
#pragma once
#include <cstring>

#include "kernels/common/quant.h"
#include "kernels/common/row_types.h"

namespace sdm {

// The bytes of a row of `columns` columns, or of that many columns of one (even for int4).
SDM_HD int64_t row_bytes(RowType type, int64_t columns) {
  switch (type) {
    case RowType::kFloat32:
      return 4 * columns;
    case RowType::kBFloat16:
      return 2 * columns;
    case RowType::kFloat8E4M3:
      return columns;
    case RowType::kInt4:
      return columns / 2;
  }
  return 0;
}

// Where column `column` of row `row` starts.
SDM_HD const char* row_address(const void* rows, RowType type, int64_t row, int32_t hd,
                               int32_t column) {
  return static_cast<const char*>(rows) + row * row_bytes(type, hd) + row_bytes(type, column);
}
SDM_HD char* row_address(void* rows, RowType type, int64_t row, int32_t hd, int32_t column) {
  return static_cast<char*>(rows) + row * row_bytes(type, hd) + row_bytes(type, column);
}

// `width` columns as f32, zeros up to kColumns. A constant width lets the compiler unroll.
template <int kColumns>
SDM_HD void load_f32_bf16(RowType type, const char* from, int32_t width, float* to) {
  if (type == RowType::kFloat32) {
    std::memcpy(to, from, width * sizeof(float));
  } else {
    uint16_t bits[kColumns];
    std::memcpy(bits, from, width * sizeof(uint16_t));
    for (int32_t c = 0; c < width; ++c) to[c] = bf16_to_float(bits[c]);
  }
  for (int32_t c = width; c < kColumns; ++c) to[c] = 0.0f;
}

// The same for a quantized snapshot row, decoded to a value that the bank's type holds exactly.
template <int kColumns>
SDM_HD void load_quantized(RowType type, const char* from, int32_t width, float scale,
                           RowType bank_type, float* to) {
  uint8_t bytes[kColumns];
  if (type == RowType::kFloat8E4M3) {
    std::memcpy(bytes, from, width);
    for (int32_t c = 0; c < width; ++c) to[c] = e4m3_to_float(bytes[c]);
  } else {
    std::memcpy(bytes, from, width / 2);
    for (int32_t i = 0; i < width / 2; ++i) {
      to[2 * i] = int4_to_float(bytes[i] >> 4);
      to[2 * i + 1] = int4_to_float(bytes[i] & 15u);
    }
  }
  if (bank_type == RowType::kBFloat16) {
    for (int32_t c = 0; c < width; ++c) to[c] = dequantize_to_bf16(to[c], scale);
  } else {
    for (int32_t c = 0; c < width; ++c) to[c] = dequantize_to_float(to[c], scale);
  }
  for (int32_t c = width; c < kColumns; ++c) to[c] = 0.0f;
}

template <int kColumns>
SDM_HD void store_f32_bf16(RowType type, const float* from, int32_t width, char* to) {
  if (type == RowType::kFloat32) {
    std::memcpy(to, from, width * sizeof(float));
  } else {
    uint16_t bits[kColumns];
    for (int32_t c = 0; c < width; ++c) bits[c] = float_to_bf16(from[c]);
    std::memcpy(to, bits, width * sizeof(uint16_t));
  }
}

}  // namespace sdm
