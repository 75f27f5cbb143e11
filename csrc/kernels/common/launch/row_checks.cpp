#include "kernels/common/launch/row_checks.h"

#include <algorithm>

#include "kernels/common/rows/row_bits.h"
#include "plancap/base/error.h"
#include "plancap/format/dtypes.h"

namespace sdm {
namespace {

// What all code takes from the traits where the type is known at run time.
struct Format {
  RowType type;
  const char* name;
  Dtype dtype;
  int codes_per_byte;
  bool scaled;
};

Format format_of(RowType type) {
  return with_row_format(type, [](auto format) {
    return Format{format.kType, format.kName, format.kDtype, kCodesPerByte<decltype(format)>,
                  format.kScaled};
  });
}

// "1 (f32), 2 (bf16)"
std::string numbers(bool plain_only) {
  std::string list;
  for (const RowType type : kRowTypes) {
    if (plain_only && is_quantized(type)) continue;
    list +=
        cat(list.empty() ? "" : ", ", static_cast<int32_t>(type), " (", row_type_name(type), ")");
  }
  return list;
}

void check_type(const plancap::ParamView& view, const char* field, RowType type, bool plain_only) {
  const bool known = std::ranges::find(kRowTypes, type) != std::end(kRowTypes);
  if (known && !(plain_only && is_quantized(type))) return;
  view.expect(false, field, cat("a row format: ", numbers(plain_only)),
              std::to_string(static_cast<int32_t>(type)));
}

// Codes are bytes, whatever they mean, or elements of the format's own dtype.
bool has_dtype(const Format& format, Dtype dtype) {
  return dtype == format.dtype || (format.scaled && dtype == Dtype::kUint8);
}

bool has_width(const Format& format, int64_t width, int64_t hd) {
  return width * format.codes_per_byte == hd;
}

// "bfloat16 [..., 128]", "int4 pairs uint8 [..., 128/2]"
std::string rows_of(const Format& format, int64_t hd) {
  const int per = format.codes_per_byte;
  if (per == 1) return cat(dtype_name(format.dtype), " [..., ", hd, "]");
  const char* codes = per == 2 ? " pairs " : " codes ";
  return cat(format.name, codes, dtype_name(format.dtype), " [..., ", hd, "/", per, "]");
}

void expect_dtype(const char* where, const char* argument, const TensorRef& tensor, RowType bank) {
  const char* bank_name = dtype_name(format_of(bank).dtype);
  const bool fits = std::ranges::any_of(kRowTypes, [&](RowType type) {
    return is_snapshot_of(type, bank) && has_dtype(format_of(type), tensor.dtype);
  });
  std::string dtypes;
  for (const RowType type : kRowTypes) {
    if (!is_snapshot_of(type, bank)) continue;
    const std::string name = dtype_name(format_of(type).dtype);
    if (dtypes.find(name) == std::string::npos) dtypes += cat(dtypes.empty() ? "" : ", ", name);
  }
  SDM_EXPECT(fits, kType, where, argument, cat(dtypes, " (the bank is ", bank_name, ")"),
             tensor.describe());
}

RowType expect_given(const char* where, const char* argument, const TensorRef& tensor, RowType bank,
                     int64_t hd, RowType given) {
  const Format format = format_of(given);
  SDM_EXPECT(is_snapshot_of(given, bank), kValue, where, cat(argument, "_format"),
             cat("rows no wider than the bank's, which is ", row_type_name(bank)), format.name);
  const std::string rows = cat(rows_of(format, hd), " (the format is ", format.name, ")");
  SDM_EXPECT(has_dtype(format, tensor.dtype), kType, where, argument, rows, tensor.describe());
  SDM_EXPECT(has_width(format, tensor.shape[tensor.ndim - 1], hd), kValue, where, argument, rows,
             tensor.describe());
  return given;
}

RowType infer(const char* where, const char* argument, const TensorRef& tensor, RowType bank,
              int64_t hd) {
  expect_dtype(where, argument, tensor, bank);
  std::string wanted;
  for (const RowType type : kRowTypes) {
    const Format format = format_of(type);
    if (!is_snapshot_of(type, bank) || !has_dtype(format, tensor.dtype)) continue;
    if (has_width(format, tensor.shape[tensor.ndim - 1], hd)) return type;
    wanted += cat(wanted.empty() ? "" : " or ", rows_of(format, hd));
  }
  SDM_EXPECT(false, kValue, where, argument, wanted, tensor.describe());
  return bank;  // not reached
}

}  // namespace

const char* row_type_name(RowType type) { return format_of(type).name; }

std::optional<RowType> plain_row_type(Dtype dtype) {
  for (const RowType type : kRowTypes) {
    if (!is_quantized(type) && format_of(type).dtype == dtype) return type;
  }
  return {};
}

RowType expect_row_format(const char* where, const char* argument, std::string_view name) {
  std::string names;
  for (const RowType type : kRowTypes) {
    if (name == row_type_name(type)) return type;
    names += cat(names.empty() ? "" : ", ", row_type_name(type));
  }
  SDM_EXPECT(false, kValue, where, argument, cat("one of ", names), cat("'", name, "'"));
  return kRowTypes[0];  // not reached
}

bool is_snapshot_of(RowType snap, RowType bank) {
  return is_quantized(snap) || element_bits(snap) <= element_bits(bank);
}

RowType expect_snapshot_rows(const char* where, const char* argument, const TensorRef& tensor,
                             RowType bank, int64_t hd, std::optional<RowType> given) {
  SDM_EXPECT(tensor.ndim >= 2, kValue, where, argument,
             "rows of one snapshot in the last dimension", tensor.describe());
  return given ? expect_given(where, argument, tensor, bank, hd, *given)
               : infer(where, argument, tensor, bank, hd);
}

void check_plain_type(const plancap::ParamView& view, const char* field, RowType type) {
  check_type(view, field, type, true);
}

void check_snapshot_type(const plancap::ParamView& view, const char* field, RowType type,
                         RowType bank, int32_t hd) {
  check_type(view, field, type, false);
  const Format format = format_of(type);
  view.expect(is_snapshot_of(type, bank), field, "rows no wider than the bank's", format.name);
  view.expect(hd % format.codes_per_byte == 0, "hd", "whole bytes of codes", std::to_string(hd));
}

}  // namespace sdm
