// Row dots on the host: 32 lane partials of four columns each, then the balanced tree over the
// lanes in index order. Trees are done for a batch of dots at once, level by level, so that every
// addition of a level is one vector operation wide.
#pragma once
#include "kernels/common/host/lane_columns.h"

namespace sdm {

inline constexpr int kDotBatch = 16;

// Every lane's partial of <a, b>.
template <int kColumns>
SDM_HD void lane_partials(const LaneColumns<kColumns>& a, const LaneColumns<kColumns>& b,
                          float* partials) {
  for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
    partials[l] = lane_dot(a.part[0][l], a.part[1][l], a.part[2][l], a.part[3][l], b.part[0][l],
                           b.part[1][l], b.part[2][l], b.part[3][l]);
  }
}

// Lane partials of a batch of dots. Made once per thread: lanes that no column reaches stay 0.
struct BatchPartials {
  alignas(64) float of[kDotBatch][kLanes] = {};
};

template <int kSums>
SDM_HD void add_pairs(const float* from, float* to) {
  for (int i = 0; i < kSums; ++i) to[i] = plus(from[2 * i], from[2 * i + 1]);
}

// A batch's dots, [kDotBatch].
SDM_HD void lane_trees(const BatchPartials& partials, float* dots) {
  alignas(64) float sums16[kDotBatch * 16], sums8[kDotBatch * 8];
  alignas(64) float sums4[kDotBatch * 4], sums2[kDotBatch * 2];
  add_pairs<kDotBatch * 16>(partials.of[0], sums16);
  add_pairs<kDotBatch * 8>(sums16, sums8);
  add_pairs<kDotBatch * 4>(sums8, sums4);
  add_pairs<kDotBatch * 2>(sums4, sums2);
  add_pairs<kDotBatch>(sums2, dots);
}

// Dots waiting for their trees: each is written as factor * dot (a factor of 1 changes no bit).
struct DotBatch {
  BatchPartials partials;
  float* out[kDotBatch];
  float factor[kDotBatch];
  int count = 0;

  SDM_HD float* next() { return partials.of[count]; }

  SDM_HD void push(float* to, float times_factor) {
    out[count] = to;
    factor[count] = times_factor;
    if (++count == kDotBatch) flush();
  }

  SDM_HD void flush() {
    alignas(64) float dots[kDotBatch];
    lane_trees(partials, dots);
    for (int i = 0; i < count; ++i) *out[i] = times(factor[i], dots[i]);
    count = 0;
  }
};

}  // namespace sdm
