// The columns of a row that one thread holds: kCols of them, stored as kType. They travel as raw
// bits and become floats where the arithmetic needs them.
//
// With kAnyRow the type is known at run time, elements are read and written one by one, the raw
// bits are the decoded floats, and nothing needs more than its element's alignment.
#pragma once
#include "kernels/common/rows/raw_bits.cuh"
#include "kernels/common/rows/row_bits.h"

namespace sdm {

template <RowType kType, int kCols>
using RawPiece = RawBits<piece_bytes(kType, kCols)>;

// The stored bits of column c of a piece.
template <class Format, int kCols>
__device__ __forceinline__ uint32_t piece_bits(const RawPiece<Format::kType, kCols>& raw, int c) {
  constexpr int kPerWord = 32 / Format::kBits;
  return column_bits<Format>(raw.word[c / kPerWord], c % kPerWord);
}

// Raw bits as floats. A quantized piece needs its row's scale and the bank's type.
template <RowType kType, int kCols, RowType kBank = kType>
__device__ __forceinline__ void decode(const RawPiece<kType, kCols>& raw, float scale,
                                       float (&to)[kCols]) {
  if constexpr (kType == kAnyRow) {
#pragma unroll
    for (int c = 0; c < kCols; ++c) to[c] = bits_to_float(raw.word[c]);
  } else {
    using Format = RowFormat<kType>;
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      to[c] = Format::decode(piece_bits<Format, kCols>(raw, c));
      if constexpr (Format::kScaled) to[c] = RowFormat<kBank>::restored(to[c], scale);
    }
  }
}

// Floats rounded to plain rows (kAnyRow rounds when it stores).
template <RowType kType, int kCols>
__device__ __forceinline__ RawPiece<kType, kCols> encode(const float (&from)[kCols]) {
  RawPiece<kType, kCols> raw;
  if constexpr (kType == RowType::kBFloat16) {  // two by one instruction
#pragma unroll
    for (int c = 0; c < kCols; c += 2) raw.word[c / 2] = ptx::pack_bf16(from[c], from[c + 1]);
  } else {
    static_assert(kType == RowType::kFloat32 || kType == kAnyRow);
#pragma unroll
    for (int c = 0; c < kCols; ++c) raw.word[c] = float_to_bits(from[c]);
  }
  return raw;
}

}  // namespace sdm
