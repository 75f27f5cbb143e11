// The ways in which rows are stored, a trait each. Whatever differs between row types is read here:
// no code elsewhere lists them. A new one is an enumerator, a trait, a line in kRowTypes
// and a case in with_row_format (csrc/kernels/DESIGN.md).
#pragma once
#include <type_traits>

#include "kernels/common/rows/quant.h"
#include "kernels/common/rows/row_types.h"
#include "plancap/format/plan_format.h"

namespace sdm {

// kName: in the names of device functions, plan checks and Python. kDtype: what a tensor of such
// rows is. kBits: of a stored column. kScaled: codes, with one f32 scale a row, for snapshots
// alone. decode, encode: a column's kBits and its value, or the code's before the scale.
//
// Plain rows, which banks and grads have, also say what becomes of a code times its scale in a bank
// of theirs; scaled ones, which magnitude is the largest that encode gives.
//
// There is no general form: a type without a trait does not compile.
template <RowType kType>
struct RowFormat;

template <>
struct RowFormat<RowType::kFloat32> {
  static constexpr RowType kType = RowType::kFloat32;
  static constexpr const char* kName = "f32";
  static constexpr plancap::Dtype kDtype = plancap::Dtype::kFloat32;
  static constexpr int kBits = 32;
  static constexpr bool kScaled = false;
  static SDM_HD float decode(uint32_t bits) { return bits_to_float(bits); }
  static SDM_HD uint32_t encode(float value) { return float_to_bits(value); }
  static SDM_HD float restored(float code, float scale) { return dequantize_to_float(code, scale); }
};

template <>
struct RowFormat<RowType::kBFloat16> {
  static constexpr RowType kType = RowType::kBFloat16;
  static constexpr const char* kName = "bf16";
  static constexpr plancap::Dtype kDtype = plancap::Dtype::kBFloat16;
  static constexpr int kBits = 16;
  static constexpr bool kScaled = false;
  static SDM_HD float decode(uint32_t bits) { return bits_to_float(bits << 16); }
  static SDM_HD uint32_t encode(float value) { return float_to_bf16(value); }
  static SDM_HD float restored(float code, float scale) { return dequantize_to_bf16(code, scale); }
};

template <>
struct RowFormat<RowType::kFloat8E4M3> {
  static constexpr RowType kType = RowType::kFloat8E4M3;
  static constexpr const char* kName = "fp8";
  static constexpr plancap::Dtype kDtype = plancap::Dtype::kFloat8E4M3;
  static constexpr int kBits = 8;
  static constexpr bool kScaled = true;
  static constexpr float kLargestCode = 448.0f;
  static SDM_HD float decode(uint32_t bits) { return e4m3_to_float(bits); }
  static SDM_HD uint32_t encode(float ratio) { return float_to_e4m3(ratio); }
};

template <>
struct RowFormat<RowType::kInt4> {
  static constexpr RowType kType = RowType::kInt4;
  static constexpr const char* kName = "int4";
  static constexpr plancap::Dtype kDtype = plancap::Dtype::kUint8;
  static constexpr int kBits = 4;
  static constexpr bool kScaled = true;
  static constexpr float kLargestCode = 7.0f;
  static SDM_HD float decode(uint32_t bits) { return int4_to_float(bits); }
  static SDM_HD uint32_t encode(float ratio) { return float_to_int4(ratio); }
};

// All of them, as they are counted.
inline constexpr RowType kRowTypes[] = {RowType::kFloat32, RowType::kBFloat16, RowType::kFloat8E4M3,
                                        RowType::kInt4};
inline constexpr int kNumRowTypes = sizeof(kRowTypes) / sizeof(kRowTypes[0]);

// visit(RowFormat<type>{}). A check has let the type in (row_checks.h): of another there is nothing
// to say, and a constant of another does not compile.
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"
template <typename Visit>
SDM_HD constexpr decltype(auto) with_row_format(RowType type, const Visit& visit) {
  switch (type) {
    case RowType::kFloat32:
      return visit(RowFormat<RowType::kFloat32>{});
    case RowType::kBFloat16:
      return visit(RowFormat<RowType::kBFloat16>{});
    case RowType::kFloat8E4M3:
      return visit(RowFormat<RowType::kFloat8E4M3>{});
    case RowType::kInt4:
      return visit(RowFormat<RowType::kInt4>{});
  }
  __builtin_unreachable();
}
#pragma GCC diagnostic pop

// The first place in kRowTypes from `kAt` on whose rows are scaled, or are not.
template <bool kScaled, int kAt>
SDM_HD constexpr int place_from() {
  if constexpr (kAt < kNumRowTypes) {
    if constexpr (RowFormat<kRowTypes[kAt]>::kScaled != kScaled) {
      return place_from<kScaled, kAt + 1>();
    }
  }
  return kAt;
}

// The same for a type whose rows are known to be scaled, or not to be. What is none of the others
// is the last one, without a test: a check has let it in.
template <bool kScaled, int kAt, typename Visit>
SDM_HD constexpr decltype(auto) visit_from(RowType type, const Visit& visit) {
  using Format = RowFormat<kRowTypes[kAt]>;
  constexpr int kNext = place_from<kScaled, kAt + 1>();
  if constexpr (kNext < kNumRowTypes) {
    return type == Format::kType ? visit(Format{}) : visit_from<kScaled, kNext>(type, visit);
  } else {
    return visit(Format{});
  }
}
template <typename Visit>
SDM_HD constexpr decltype(auto) with_plain_format(RowType type, const Visit& visit) {
  return visit_from<false, place_from<false, 0>()>(type, visit);
}
template <typename Visit>
SDM_HD constexpr decltype(auto) with_scaled_format(RowType type, const Visit& visit) {
  return visit_from<true, place_from<true, 0>()>(type, visit);
}

// What becomes of a code times its scale in a bank of this type. The narrow banks are asked for
// first, which is what compiles best where the type is known at run time.
template <int kAt = kNumRowTypes - 1>
SDM_HD float restored(RowType bank_type, float code, float scale) {
  using Bank = RowFormat<kRowTypes[kAt]>;
  if constexpr (Bank::kScaled) {
    return restored<kAt - 1>(bank_type, code, scale);
  } else if constexpr (kAt > 0) {
    return bank_type == Bank::kType ? Bank::restored(code, scale)
                                    : restored<kAt - 1>(bank_type, code, scale);
  } else {
    return Bank::restored(code, scale);
  }
}

// Columns that share a byte; rows have a multiple of them.
template <class Format>
inline constexpr int kCodesPerByte = Format::kBits < 8 ? 8 / Format::kBits : 1;

// What one access of a column, or of the columns that share a byte, takes.
template <class Format>
using StoredBits = std::conditional_t<Format::kBits == 32, uint32_t,
                                      std::conditional_t<Format::kBits == 16, uint16_t, uint8_t>>;

// The stored bits of column `column` of those in `word`, the first in the lowest byte and, where
// they share one, in its highest bits.
template <class Format>
SDM_HD constexpr uint32_t column_bits(uint32_t word, int column) {
  constexpr int kPerByte = kCodesPerByte<Format>;
  if constexpr (Format::kBits == 32) {
    return word;
  } else {
    const int shift = kPerByte * Format::kBits * (column / kPerByte) +
                      Format::kBits * (kPerByte - 1 - column % kPerByte);
    return word >> shift & ((1u << Format::kBits) - 1);
  }
}

}  // namespace sdm
