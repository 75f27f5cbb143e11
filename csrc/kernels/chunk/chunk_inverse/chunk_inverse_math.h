// The chains of X and QX, for the host twin and the device kernel.
//
//   X_ic  = (the sum over j = c+1 .. i-1 of -system_ij X_jc) - system_ic      below the diagonal
//   QX_ic = (the sum over j = c+1 .. i of qk_ij X_jc) + qk_ic                 on and below it
//
// A sum's links are fused operations in ascending j, from +0. The link of the column's own row,
// where X_cc is 1, comes last: it is mostly the largest, and what is rounded before it is small.
// Rows j < c are no links, X_jc being zero by structure: a NaN or an infinity in row i stays in the
// columns that it belongs to.
#pragma once
#include "kernels/common/math/ordered_math.h"

namespace sdm {

enum class TriangleChain { kInverse, kProduct };

template <TriangleChain kChain>
SDM_HD float add_link(float factor, float x, float sum) {
  return fused(kChain == TriangleChain::kInverse ? -factor : factor, x, sum);
}

template <TriangleChain kChain>
SDM_HD float add_own(float factor, float sum) {
  return plus(sum, kChain == TriangleChain::kInverse ? -factor : factor);
}

}  // namespace sdm
