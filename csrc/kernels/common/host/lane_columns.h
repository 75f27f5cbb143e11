// One column slice of a row on the host, as f32 in lane order: part[k][l] = column 4l + k of the
// slice. Lane order makes a row dot's partials, and everything done column by column, whole
// vectors, and a packed row (4 columns of bf16, e4m3 or int4 are one word) unpacks with shifts.
// Everything is always_inline, so that it is compiled for the instruction set of its caller.
#pragma once
#include <cstring>

#include "kernels/common/math/ordered_math.h"
#include "kernels/common/rows/row_formats.h"

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

// Of a lane's four columns the stored bits of column kColumn. They are in words, or in half of one.
template <class Format, int kColumn>
SDM_HD uint32_t lane_bits(const char* from, int l) {
  constexpr int kLaneBits = kLaneColumns * Format::kBits;
  constexpr int kPerWord = kLaneBits < 32 ? kLaneColumns : 32 / Format::kBits;
  static_assert(kLaneBits >= 16);
  const int at = kLaneColumns / kPerWord * l + kColumn / kPerWord;
  if constexpr (kLaneBits == 16) {
    return column_bits<Format>(reinterpret_cast<const Word16*>(from)[at], kColumn % kPerWord);
  } else {
    return column_bits<Format>(reinterpret_cast<const Word32*>(from)[at], kColumn % kPerWord);
  }
}

template <class Format, int kColumns>
SDM_HD void to_lanes(const char* from, LaneColumns<kColumns>& to) {
  SDM_FOR_LANES(l, kColumns) {
    to.part[0][l] = Format::decode(lane_bits<Format, 0>(from, l));
    to.part[1][l] = Format::decode(lane_bits<Format, 1>(from, l));
    to.part[2][l] = Format::decode(lane_bits<Format, 2>(from, l));
    to.part[3][l] = Format::decode(lane_bits<Format, 3>(from, l));
  }
}

// Of plain rows, a column a word or two.
template <class Format, int kColumns>
SDM_HD void from_lanes(const LaneColumns<kColumns>& from, char* to) {
  static_assert(Format::kBits == 32 || Format::kBits == 16);
  auto* words = reinterpret_cast<Word32*>(to);
  SDM_FOR_LANES(l, kColumns) {
    const uint32_t first = Format::encode(from.part[0][l]),
                   second = Format::encode(from.part[1][l]);
    const uint32_t third = Format::encode(from.part[2][l]),
                   fourth = Format::encode(from.part[3][l]);
    if constexpr (Format::kBits == 32) {
      words[4 * l] = first;
      words[4 * l + 1] = second;
      words[4 * l + 2] = third;
      words[4 * l + 3] = fourth;
    } else {
      words[2 * l] = first | second << 16;
      words[2 * l + 1] = third | fourth << 16;
    }
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
template <class Bank, int kColumns>
SDM_HD void restore_lanes(LaneColumns<kColumns>& lanes, float scale) {
  for (int k = 0; k < kLaneColumns; ++k) {
    float* part = lanes.part[k];
    for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
      part[l] = Bank::restored(part[l], scale);
    }
  }
}

}  // namespace sdm
