// exp, log1p, sigmoid and softplus in float32, the same bits on the CPU and the GPU: every
// operation is spelled, and no library's version of them is called.
#pragma once
#include "kernels/common/math/bf16.h"
#include "kernels/common/math/ordered_math.h"

namespace sdm {

// One correctly rounded operation each, as plus() and times() are.
SDM_HD float divided(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

SDM_HD float square_root(float a) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(a);
#else
  return __builtin_sqrtf(a);
#endif
}

SDM_HD float infinite() { return bits_to_float(0x7f800000u); }

// exp(x), within 1.1 units in the last place (tests/kernels/test_elementary.py); denormal results
// have one more rounding. NaN stays NaN.
//
// x = n ln 2 + r with n whole, ln 2 in two parts of which n times the first is exact; exp(r) by a
// polynomial: 1 + r + r^2 P(r), P fitted to least largest error over |r| <= ln 2 / 2 (7.5e-9 of 1).
SDM_HD float exponential(float x) {
  if (x != x) return x;
  if (x > 88.72284f) return infinite();
  if (x < -104.0f) return 0.0f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it leaves no fraction
  const float n = plus(plus(times(x, 1.4426950216293335f), kRounder), -kRounder);
  const float r = fused(-n, -0.00021219444170128554f, fused(-n, 0.693359375f, x));
  float p = 0.0013941217912361026f;
  p = fused(p, r, 0.00836323481053114f);
  p = fused(p, r, 0.04166637361049652f);
  p = fused(p, r, 0.16666576266288757f);
  p = fused(p, r, 0.5f);
  p = plus(fused(p, times(r, r), r), 1.0f);
  // Times 2^n in two steps: 2^n alone may be no normal number.
  const int32_t whole = static_cast<int32_t>(n), half = whole / 2;
  const float first = bits_to_float(static_cast<uint32_t>(half + 127) << 23);
  const float second = bits_to_float(static_cast<uint32_t>(whole - half + 127) << 23);
  return times(times(p, first), second);
}

// log(1 + u) for u in [0, 1], within 2 units in the last place. NaN stays NaN.
//
// 2 atanh(s) with s = u / (2 + u) <= 1/3: 2s + s^3 Q(s^2), Q fitted as above (4e-10).
SDM_HD float log_1_plus(float u) {
  const float s = divided(u, plus(2.0f, u));
  const float z = times(s, s);
  float q = 0.23313841223716736f;
  q = fused(q, z, 0.2168826162815094f);
  q = fused(q, z, 0.2859351933002472f);
  q = fused(q, z, 0.399996817111969f);
  q = fused(q, z, 0.6666666865348816f);
  return fused(times(s, z), q, times(2.0f, s));
}

// 1 / (1 + exp(-x)), within 3 units in the last place; of negative x as exp(x) / (1 + exp(x)),
// which does not overflow.
SDM_HD float sigmoid(float x) {
  const float small = exponential(x < 0.0f ? x : -x);
  return divided(x < 0.0f ? small : 1.0f, plus(1.0f, small));
}

// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), without overflow or cancellation;
// within 3 units in the last place.
SDM_HD float softplus(float x) {
  const float size = x < 0.0f ? x : -x;
  return plus(x > 0.0f ? x : 0.0f, log_1_plus(exponential(size)));
}

}  // namespace sdm
