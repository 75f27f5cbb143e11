#include "kernels/rows/quantize_rows/quantize_rows.h"

#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/launch/row_checks.h"
#include "kernels/common/launch/step_launch.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/rows/row_bits.h"

namespace sdm {
namespace {

constexpr const char* kName = "quantize_rows";

template <class Rows>
SDM_HD float load(const void* row, int64_t column) {
  return Rows::decode(static_cast<const StoredBits<Rows>*>(row)[column]);
}

// The row's scale. Magnitudes compare as integers, and a NaN's is the largest of all.
template <class Rows>
SDM_HD float row_scale(const void* row, int64_t hd, float largest_code) {
  uint32_t largest = 0;
  for (int64_t c = 0; c < hd; ++c) {
    const uint32_t magnitude = float_to_bits(load<Rows>(row, c)) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return quant_scale(bits_to_float(largest), largest_code);
}

// The codes that share a byte begin in its highest bits.
template <class Rows, class Format>
SDM_HD float encode_row(const void* row, int64_t hd, uint8_t* codes) {
  constexpr int kPerByte = kCodesPerByte<Format>;
  const float scale = row_scale<Rows>(row, hd, Format::kLargestCode);
  for (int64_t i = 0; i < hd / kPerByte; ++i) {
    uint32_t byte = 0;
    for (int code = 0; code < kPerByte; ++code) {
      const float ratio = quant_ratio(load<Rows>(row, kPerByte * i + code), scale);
      byte = byte << Format::kBits % 8 | Format::encode(ratio);
    }
    codes[i] = static_cast<uint8_t>(byte);
  }
  return scale;
}

SDM_MULTIVERSION
float encode(const void* row, RowType rows, int64_t hd, RowType format, uint8_t* codes) {
  return with_scaled_format(format, [&](auto to) SDM_INLINE_LAMBDA {
    return with_plain_format(rows, [&](auto from) SDM_INLINE_LAMBDA {
      return encode_row<decltype(from), decltype(to)>(row, hd, codes);
    });
  });
}

// Returns the type of the rows.
RowType check(const TensorRef& rows, const TensorRef& codes, const TensorRef& scales,
              RowType format) {
  const std::optional<RowType> type = plain_row_type(rows.dtype);
  SDM_EXPECT(type, kType, kName, "rows", "float32 or bfloat16 [m, hd]", rows.describe());
  expect_tensor(kName, "rows", rows, rows.dtype, {"m", "hd"});
  const int64_t m = rows.shape[0], hd = rows.shape[1];
  expect_head_dim(kName, hd);
  SDM_EXPECT(is_quantized(format), kValue, kName, "format", "one whose rows have scales",
             row_type_name(format));
  const int64_t per_byte = codes_per_byte(format);
  SDM_EXPECT(hd % per_byte == 0, kValue, kName, "rows",
             cat("a multiple of ", per_byte, " columns for ", row_type_name(format)),
             rows.describe());
  expect_tensor(kName, "codes", codes, Dtype::kUint8, {m, hd / per_byte});
  expect_tensor(kName, "scales", scales, Dtype::kFloat32, {m});
  expect_device(kName, "rows", rows, Device{});
  expect_device(kName, "codes", codes, Device{});
  expect_device(kName, "scales", scales, Device{});
  return *type;
}

}  // namespace

void quantize_rows(const TensorRef& rows, const TensorRef& codes, const TensorRef& scales,
                   RowType format) {
  const RowType type = check(rows, codes, scales, format);
  const int64_t hd = rows.shape[1];
  const auto* from = static_cast<const char*>(rows.data);
  auto* to = static_cast<uint8_t*>(codes.data);
  auto* row_scales = static_cast<float*>(scales.data);
  const int64_t row_bytes = hd * dtype_bytes(rows.dtype);
#pragma omp parallel if (rows.numel() > kSerialElements)
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows.shape[0]; ++row) {
      row_scales[row] = encode(from + row * row_bytes, type, hd, format, to + row * codes.shape[1]);
    }
  }
}

}  // namespace sdm
