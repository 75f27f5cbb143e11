// One column slice of a row on the host, as f32 in lane order: part[k][l] = column 4l + k of the
// slice. Lane order makes a row dot's partials, and everything done column by column, whole
// vectors, and a packed row (4 columns of bf16, e4m3 or int4 are one word) unpacks with shifts.
// Everything is always_inline, so that it is compiled for the instruction set of its caller.
#pragma once
#include <cstring>

#include "kernels/common/math/ordered_math.h"
#include "kernels/common/rows/quant.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

template <int kColumns>
struct LaneColumns {
  static constexpr int kActive = kColumns / kLaneColumns;  // lanes that may hold columns
  alignas(64) float part[kLaneColumns][kActive];
};

// The words of packed rows, which start at any address.
using Word32 = uint32_t __attribute__((may_alias, aligned(1)));
using Word16 = uint16_t __attribute__((may_alias, aligned(1)));

// Loops over the lanes stay loops until the compiler has vectorized them: unrolled before that,
// they would be vectorized across the four columns of a lane, one float at a time.
#define SDM_FOR_LANES(l, kColumns) \
  _Pragma("GCC unroll 1") for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l)

template <int kColumns>
SDM_HD void zero_lanes(LaneColumns<kColumns>& lanes) {
  for (int k = 0; k < kLaneColumns; ++k) {
    for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) lanes.part[k][l] = 0.0f;
  }
}

template <int kColumns>
SDM_HD void f32_to_lanes(const char* from, LaneColumns<kColumns>& to) {
  const auto* words = reinterpret_cast<const Word32*>(from);
  SDM_FOR_LANES(l, kColumns) {
    to.part[0][l] = bits_to_float(words[4 * l]);
    to.part[1][l] = bits_to_float(words[4 * l + 1]);
    to.part[2][l] = bits_to_float(words[4 * l + 2]);
    to.part[3][l] = bits_to_float(words[4 * l + 3]);
  }
}

template <int kColumns>
SDM_HD void lanes_to_f32(const LaneColumns<kColumns>& from, char* to) {
  auto* words = reinterpret_cast<Word32*>(to);
  SDM_FOR_LANES(l, kColumns) {
    words[4 * l] = float_to_bits(from.part[0][l]);
    words[4 * l + 1] = float_to_bits(from.part[1][l]);
    words[4 * l + 2] = float_to_bits(from.part[2][l]);
    words[4 * l + 3] = float_to_bits(from.part[3][l]);
  }
}

template <int kColumns>
SDM_HD void bf16_to_lanes(const char* from, LaneColumns<kColumns>& to) {
  const auto* words = reinterpret_cast<const Word32*>(from);
  SDM_FOR_LANES(l, kColumns) {
    const uint32_t low = words[2 * l], high = words[2 * l + 1];
    to.part[0][l] = bits_to_float(low << 16);
    to.part[1][l] = bits_to_float(low & 0xffff0000u);
    to.part[2][l] = bits_to_float(high << 16);
    to.part[3][l] = bits_to_float(high & 0xffff0000u);
  }
}

template <int kColumns>
SDM_HD void lanes_to_bf16(const LaneColumns<kColumns>& from, char* to) {
  auto* words = reinterpret_cast<Word32*>(to);
  SDM_FOR_LANES(l, kColumns) {
    words[2 * l] =
        uint32_t{float_to_bf16(from.part[0][l])} | uint32_t{float_to_bf16(from.part[1][l])} << 16;
    words[2 * l + 1] =
        uint32_t{float_to_bf16(from.part[2][l])} | uint32_t{float_to_bf16(from.part[3][l])} << 16;
  }
}

template <int kColumns>
SDM_HD void e4m3_to_lanes(const char* from, LaneColumns<kColumns>& to) {
  const auto* words = reinterpret_cast<const Word32*>(from);
  SDM_FOR_LANES(l, kColumns) {
    const uint32_t word = words[l];
    to.part[0][l] = e4m3_to_float(word & 0xffu);
    to.part[1][l] = e4m3_to_float(word >> 8 & 0xffu);
    to.part[2][l] = e4m3_to_float(word >> 16 & 0xffu);
    to.part[3][l] = e4m3_to_float(word >> 24);
  }
}

// The even column of a pair is in the byte's high nibble.
template <int kColumns>
SDM_HD void int4_to_lanes(const char* from, LaneColumns<kColumns>& to) {
  const auto* words = reinterpret_cast<const Word16*>(from);
  SDM_FOR_LANES(l, kColumns) {
    const uint32_t word = words[l];
    to.part[0][l] = int4_to_float(word >> 4 & 15u);
    to.part[1][l] = int4_to_float(word & 15u);
    to.part[2][l] = int4_to_float(word >> 12);
    to.part[3][l] = int4_to_float(word >> 8 & 15u);
  }
}

// sum = factor * row + sum, one rounding, column by column.
template <int kColumns>
SDM_HD void add_scaled(float factor, const LaneColumns<kColumns>& row, LaneColumns<kColumns>& sum) {
  for (int k = 0; k < kLaneColumns; ++k) {
    for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
      sum.part[k][l] = fused(factor, row.part[k][l], sum.part[k][l]);
    }
  }
}

// Columns from `width` on become 0: a code of 0 times an infinite scale is not.
template <int kColumns>
SDM_HD void zero_behind(LaneColumns<kColumns>& lanes, int32_t width) {
  for (int32_t c = width; c < kColumns; ++c) lanes.part[c % kLaneColumns][c / kLaneColumns] = 0.0f;
}

// Quantized codes to values that the bank's type holds exactly.
template <int kColumns>
SDM_HD void dequantize_lanes(LaneColumns<kColumns>& lanes, float scale, RowType bank_type) {
  for (int k = 0; k < kLaneColumns; ++k) {
    float* part = lanes.part[k];
    if (bank_type == RowType::kBFloat16) {
      for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
        part[l] = dequantize_to_bf16(part[l], scale);
      }
    } else {
      for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
        part[l] = dequantize_to_float(part[l], scale);
      }
    }
  }
}

}  // namespace sdm
