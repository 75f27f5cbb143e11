// bfloat16 as bits. Round to nearest even; a NaN stays a NaN (its payload is outside the contract).
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

SDM_HD float bits_to_float(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

SDM_HD uint32_t float_to_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return __builtin_bit_cast(uint32_t, value);
#endif
}

SDM_HD float bf16_to_float(uint16_t bits) { return bits_to_float(uint32_t{bits} << 16); }

SDM_HD uint16_t float_to_bf16(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? 0x7fffu : rounded);
}

}  // namespace sdm
