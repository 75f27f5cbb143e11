// The arithmetic of docs/step_chain.md, section 4, written once for the CPU and the GPU.
// Contraction is off in both compilers: a fused operation happens only where fused() is written,
// and nowhere else.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

// One rounding.
SDM_HD float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// Two roundings when combined; spelled so that no compiler fuses them.
SDM_HD float times(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

SDM_HD float plus(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

// One lane's part of a row dot: its four columns in order.
SDM_HD float lane_dot(float a0, float a1, float a2, float a3, float b0, float b1, float b2,
                      float b3) {
  return fused(a3, b3, fused(a2, b2, fused(a1, b1, times(a0, b0))));
}

// Column slices: hd columns in 1 + (hd-1)/128 slices of equal width, a multiple of 4, so that a
// warp's 32 lanes hold a slice four columns each.
SDM_HD int32_t num_slices(int32_t hd) { return 1 + (hd - 1) / 128; }
SDM_HD int32_t slice_width(int32_t hd) {
  const int32_t quads = (hd + 3) / 4;
  const int32_t slices = num_slices(hd);
  return slices == 1 ? 4 * quads : 4 * ((quads + slices - 1) / slices);
}

inline constexpr int32_t kLanes = 32;
inline constexpr int32_t kLaneColumns = 4;

}  // namespace sdm
