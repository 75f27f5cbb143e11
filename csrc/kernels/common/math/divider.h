// Division of numbers below 2^31 by a fixed one, as a product and a shift.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

struct Divider {
  uint32_t
      multiplier;  // ceil(2^(32 + shift) / d) with shift = ceil(log2 d) - 1; 0 stands for d = 1
  int32_t shift;
};

// Of 1 <= d < 2^31. The multiplier is below 2^32 + 2^32 / d, and 2^32 only for d = 1, which has its
// own form; it exceeds 2^(32 + shift) / d by less than 1, which moves no quotient of n < 2^31.
inline Divider make_divider(int32_t d) {
  if (d <= 1) return {0, 0};
  int32_t shift = 0;
  while ((int64_t{2} << shift) < d) ++shift;
  const uint64_t power = uint64_t{1} << (32 + shift);
  return {static_cast<uint32_t>((power + static_cast<uint64_t>(d) - 1) / static_cast<uint64_t>(d)),
          shift};
}

SDM_HD int32_t divided_by(int32_t n, const Divider& divider) {
  if (divider.multiplier == 0) return n;
#if defined(__CUDA_ARCH__)
  const uint32_t high = __umulhi(static_cast<uint32_t>(n), divider.multiplier);
#else
  const auto high = static_cast<uint32_t>(
      (static_cast<uint64_t>(static_cast<uint32_t>(n)) * divider.multiplier) >> 32);
#endif
  return static_cast<int32_t>(high >> divider.shift);
}

}  // namespace sdm
