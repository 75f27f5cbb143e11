// Row dots on the host: 32 lane partials of four columns each, then the balanced tree over the
// lanes in index order. Trees are done for a batch of dots at once, level by level, so that every
// addition of a level is one vector operation wide.
#pragma once
#include <cstring>

#include "kernels/common/ordered_math.h"

namespace sdm {

// Columns in lane order: lanes[k][l] = column 4l + k.
template <int kColumns>
struct LaneColumns {
  static constexpr int kActive = kColumns / kLaneColumns;  // lanes that hold a column
  alignas(64) float part[kLaneColumns][kActive];
};

template <int kColumns>
SDM_HD void to_lanes(const float* columns, LaneColumns<kColumns>& lanes) {
  for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
    for (int k = 0; k < kLaneColumns; ++k) lanes.part[k][l] = columns[kLaneColumns * l + k];
  }
}

// Every lane's partial of <a, b>.
template <int kColumns>
SDM_HD void lane_partials(const float* a, const LaneColumns<kColumns>& b, float* partials) {
  for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
    const float* x = a + kLaneColumns * l;
    partials[l] =
        lane_dot(x[0], x[1], x[2], x[3], b.part[0][l], b.part[1][l], b.part[2][l], b.part[3][l]);
  }
}

template <int kSums>
SDM_HD void add_pairs(const float* from, float* to) {
  for (int i = 0; i < kSums; ++i) to[i] = plus(from[2 * i], from[2 * i + 1]);
}

// Dots waiting for their trees: each is written as factor * dot (a factor of 1 changes no bit).
struct DotBatch {
  static constexpr int kSize = 16;
  alignas(64) float partials[kSize * kLanes];  // lanes without columns stay 0
  float* out[kSize];
  float factor[kSize];
  int count = 0;

  SDM_HD void clear() { std::memset(partials, 0, sizeof(partials)); }
  SDM_HD float* next() { return partials + count * kLanes; }

  SDM_HD void push(float* to, float times_factor) {
    out[count] = to;
    factor[count] = times_factor;
    if (++count == kSize) flush();
  }

  SDM_HD void flush() {
    alignas(64) float sums16[kSize * 16], sums8[kSize * 8], sums4[kSize * 4], sums2[kSize * 2];
    alignas(64) float dots[kSize];
    add_pairs<kSize * 16>(partials, sums16);
    add_pairs<kSize * 8>(sums16, sums8);
    add_pairs<kSize * 4>(sums8, sums4);
    add_pairs<kSize * 2>(sums4, sums2);
    add_pairs<kSize>(sums2, dots);
    for (int i = 0; i < count; ++i) *out[i] = times(factor[i], dots[i]);
    count = 0;
  }
};

}  // namespace sdm
