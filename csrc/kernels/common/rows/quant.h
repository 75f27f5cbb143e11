// The arithmetic of quantized snapshot rows, which have one scale each: e4m3 bytes, or int4 pairs
// (the even column in the high nibble). docs/step_chain.md, section 4, to the bit.
#pragma once
#include "kernels/common/math/bf16.h"
#include "kernels/common/math/ordered_math.h"

namespace sdm {

SDM_HD float round_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

// 1 sign, 4 exponent (bias 7), 3 mantissa bits; 0x7f and 0xff are NaN, there is no infinity.
// Selects constants only, so that a loop over it becomes vector code.
SDM_HD float e4m3_to_float(uint32_t byte) {
  const uint32_t magnitude = byte & 0x7fu;
  // A denormal m * 2^-9 is read as (8 + m) * 2^-9, then 2^-6 too much is taken off.
  const bool denormal = magnitude < 8u;
  const float shifted = bits_to_float((magnitude << 20) + ((denormal ? 121u : 120u) << 23));
  const uint32_t finite = float_to_bits(plus(shifted, denormal ? -0x1p-6f : 0.0f));
  const uint32_t value = magnitude == 0x7fu ? 0x7fc00000u : finite;
  return bits_to_float(value | (byte & 0x80u) << 24);
}

// Round to nearest even; what is too large (or infinite) becomes +-448, a NaN stays one.
SDM_HD uint8_t float_to_e4m3(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: the mantissa rounded to 3 bits. Denormal: adding 2^14 leaves units of 2^-9.
  const uint32_t normal = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
  const uint32_t denormal = float_to_bits(plus(bits_to_float(magnitude), 0x1p14f)) & 0xffu;
  const uint32_t finite = magnitude < 0x3c800000u /* 2^-6 */ ? denormal : normal;
  const uint32_t encoded = magnitude > 0x7f800000u              ? 0x7fu
                           : magnitude >= 0x43e00000u /* 448 */ ? 0x7eu
                                                                : finite;
  return static_cast<uint8_t>(encoded | (bits >> 24 & 0x80u));
}

SDM_HD float int4_to_float(uint32_t nibble) {
  return static_cast<float>(static_cast<int32_t>(nibble ^ 8u) - 8);
}

// The nibble of the nearest integer (ties to even) in -8..7. A NaN gives 0: its scale is NaN too.
SDM_HD uint32_t float_to_int4(float value) {
  const float low = value > -8.0f ? value : value < 0.0f ? -8.0f : 0.0f;
  const float clamped = low < 7.0f ? low : 7.0f;
  // Adding 1.5 * 2^23 leaves the integer, in two's complement, in the low mantissa bits.
  return float_to_bits(plus(clamped, 0x1.8p23f)) & 15u;
}

// A row's scale from its largest magnitude. A row that holds a NaN has a NaN for its scale.
SDM_HD float quant_scale(float amax, float largest_code) {
  const float scale = times(amax, 1.0f / largest_code);
  return round_to_bf16(scale < 1e-12f ? 1e-12f : scale);
}

// What is rounded to a code: bf16(x / scale).
SDM_HD float quant_ratio(float value, float scale) {
#if defined(__CUDA_ARCH__)
  return round_to_bf16(__fdiv_rn(value, scale));
#else
  return round_to_bf16(value / scale);
#endif
}

// The restored value of code q: x' in the bank's type, as a float.
SDM_HD float dequantize_to_bf16(float code, float scale) {
  return round_to_bf16(times(code, round_to_bf16(scale)));
}
SDM_HD float dequantize_to_float(float code, float scale) { return times(code, scale); }

}  // namespace sdm
