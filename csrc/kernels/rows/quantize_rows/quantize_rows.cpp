#include "kernels/rows/quantize_rows/quantize_rows.h"

#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/launch/step_launch.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/rows/quant.h"

namespace sdm {
namespace {

constexpr const char* kName = "quantize_rows";

SDM_HD float load(const float* row, int64_t column) { return row[column]; }
SDM_HD float load(const uint16_t* row, int64_t column) { return bf16_to_float(row[column]); }

// The row's scale. Magnitudes compare as integers, and a NaN's is the largest of all.
template <typename Element>
SDM_HD float row_scale(const Element* row, int64_t hd, float largest_code) {
  uint32_t largest = 0;
  for (int64_t c = 0; c < hd; ++c) {
    const uint32_t magnitude = float_to_bits(load(row, c)) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return quant_scale(bits_to_float(largest), largest_code);
}

template <typename Element>
SDM_HD float encode_row(const Element* row, int64_t hd, bool int4, uint8_t* codes) {
  const float scale = row_scale(row, hd, int4 ? kInt4Max : kE4M3Max);
  if (int4) {
    for (int64_t i = 0; i < hd / 2; ++i) {
      const uint32_t even = float_to_int4(quant_ratio(load(row, 2 * i), scale));
      const uint32_t odd = float_to_int4(quant_ratio(load(row, 2 * i + 1), scale));
      codes[i] = static_cast<uint8_t>(even << 4 | odd);
    }
  } else {
    for (int64_t c = 0; c < hd; ++c) codes[c] = float_to_e4m3(quant_ratio(load(row, c), scale));
  }
  return scale;
}

SDM_MULTIVERSION
float encode(const void* row, Dtype dtype, int64_t hd, bool int4, uint8_t* codes) {
  return dtype == Dtype::kFloat32 ? encode_row(static_cast<const float*>(row), hd, int4, codes)
                                  : encode_row(static_cast<const uint16_t*>(row), hd, int4, codes);
}

// Returns whether the codes are int4 pairs.
bool check(const TensorRef& rows, const TensorRef& codes, const TensorRef& scales) {
  SDM_EXPECT(rows.dtype == Dtype::kFloat32 || rows.dtype == Dtype::kBFloat16, kType, kName, "rows",
             "float32 or bfloat16 [m, hd]", rows.describe());
  expect_tensor(kName, "rows", rows, rows.dtype, {"m", "hd"});
  const int64_t m = rows.shape[0], hd = rows.shape[1];
  expect_head_dim(kName, hd);
  expect_tensor(kName, "codes", codes, Dtype::kUint8, {m, "hd or hd/2"});
  const bool int4 = 2 * codes.shape[1] == hd;
  SDM_EXPECT(int4 || codes.shape[1] == hd, kValue, kName, "codes",
             cat("uint8 [", m, ", ", hd, "] or, for an even hd, [", m, ", hd/2]"),
             codes.describe());
  expect_tensor(kName, "scales", scales, Dtype::kFloat32, {m});
  expect_device(kName, "rows", rows, Device{});
  expect_device(kName, "codes", codes, Device{});
  expect_device(kName, "scales", scales, Device{});
  return int4;
}

}  // namespace

void quantize_rows(const TensorRef& rows, const TensorRef& codes, const TensorRef& scales) {
  const bool int4 = check(rows, codes, scales);
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
      row_scales[row] =
          encode(from + row * row_bytes, rows.dtype, hd, int4, to + row * codes.shape[1]);
    }
  }
}

}  // namespace sdm
