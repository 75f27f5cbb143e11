// The columns of a row that one thread holds: kCols of them, stored as kType. They travel as raw
// bits and become floats where the arithmetic needs them.
//
// With kAnyRow the type is known at run time, elements are read and written one by one, the raw
// bits are the decoded floats, and nothing needs more than its element's alignment.
#pragma once
#include "kernels/common/rows/quant.h"
#include "kernels/common/rows/raw_bits.cuh"
#include "kernels/common/rows/row_bits.h"

namespace sdm {

template <RowType kType, int kCols>
using RawPiece = RawBits<piece_bytes(kType, kCols)>;

SDM_HD float dequantize(RowType bank_type, float code, float scale) {
  return bank_type == RowType::kBFloat16 ? dequantize_to_bf16(code, scale)
                                         : dequantize_to_float(code, scale);
}

// Column c of a quantized piece, before its scale.
template <RowType kType, int kCols>
__device__ __forceinline__ float piece_code(const RawPiece<kType, kCols>& raw, int c) {
  if constexpr (kType == RowType::kFloat8E4M3) {
    return e4m3_to_float(static_cast<uint8_t>(raw.word[c / 4] >> (8 * (c % 4))));
  } else {
    return int4_to_float(raw.word[0] >> (8 * (c / 2) + 4 * (1 - c % 2)) & 15u);
  }
}

// Raw bits as floats. A quantized piece needs its row's scale and the bank's type.
template <RowType kType, int kCols, RowType kBank = kType>
__device__ __forceinline__ void decode(const RawPiece<kType, kCols>& raw, float scale,
                                       float (&to)[kCols]) {
  if constexpr (is_quantized(kType)) {
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      to[c] = dequantize(kBank, piece_code<kType, kCols>(raw, c), scale);
    }
  } else if constexpr (kType == RowType::kBFloat16) {
#pragma unroll
    for (int c = 0; c < kCols; c += 2) {
      to[c] = bits_to_float(raw.word[c / 2] << 16);
      to[c + 1] = bits_to_float(raw.word[c / 2] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int c = 0; c < kCols; ++c) to[c] = bits_to_float(raw.word[c]);
  }
}

// Floats rounded to f32 or bf16 rows (kAnyRow rounds when it stores).
template <RowType kType, int kCols>
__device__ __forceinline__ RawPiece<kType, kCols> encode(const float (&from)[kCols]) {
  RawPiece<kType, kCols> raw;
  if constexpr (kType == RowType::kBFloat16) {
#pragma unroll
    for (int c = 0; c < kCols; c += 2) raw.word[c / 2] = ptx::pack_bf16(from[c], from[c + 1]);
  } else {
#pragma unroll
    for (int c = 0; c < kCols; ++c) raw.word[c] = float_to_bits(from[c]);
  }
  return raw;
}

}  // namespace sdm
