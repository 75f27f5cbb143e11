// Rows on the host: addresses, prefetch, and slices of any row type to and from lane order.
#pragma once
#include "kernels/common/host/lane_columns.h"
#include "kernels/common/rows/column_slices.h"
#include "kernels/common/rows/row_bits.h"

namespace sdm {

// Where column `column` of row `row` starts. Bytes in 64 bits: banks of 2^32 elements are legal.
SDM_HD const char* row_address(const void* rows, RowType type, int64_t row, int32_t hd,
                               int32_t column) {
  return static_cast<const char*>(rows) + row * row_bytes(type, hd) + row_bytes(type, column);
}
SDM_HD char* row_address(void* rows, RowType type, int64_t row, int32_t hd, int32_t column) {
  return static_cast<char*>(rows) + row * row_bytes(type, hd) + row_bytes(type, column);
}

// Asks for the cache lines of a slice of a row that is needed soon.
template <bool kWrite>
SDM_HD void prefetch_slice(const void* rows, RowType type, int64_t row, int32_t hd,
                           ColumnSlice slice) {
  constexpr int64_t kLine = 64;
  const char* from = row_address(rows, type, row, hd, slice.first);
  const int64_t bytes = row_bytes(type, slice.width);
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at, kWrite, 3);
}

// Every load and store below comes in two forms: kFull, a slice of exactly kColumns columns, or a
// narrower one, which goes through a buffer with zeros behind it.
template <int kColumns, bool kFull>
SDM_HD const char* padded_slice(const char* from, int64_t bytes, char* buffer) {
  if (kFull) return from;
  std::memset(buffer, 0, kColumns * sizeof(float));
  std::memcpy(buffer, from, bytes);
  return buffer;
}

template <int kColumns, bool kFull>
SDM_HD void load_slice(RowType type, const char* from, int32_t width, LaneColumns<kColumns>& to) {
  alignas(64) char buffer[kColumns * sizeof(float)];
  const char* padded = padded_slice<kColumns, kFull>(from, row_bytes(type, width), buffer);
  with_plain_format(type,
                    [&](auto format) SDM_INLINE_LAMBDA { to_lanes<decltype(format)>(padded, to); });
}

// A snapshot's slice: of any type, decoded to values that the bank's type holds exactly.
template <int kColumns, bool kFull>
SDM_HD void load_snapshot_slice(RowType type, const char* from, int32_t width, const float* scale,
                                RowType bank_type, LaneColumns<kColumns>& to) {
  if (!is_quantized(type)) {
    load_slice<kColumns, kFull>(type, from, width, to);
    return;
  }
  alignas(64) char buffer[kColumns * sizeof(float)];
  const char* padded = padded_slice<kColumns, kFull>(from, row_bytes(type, width), buffer);
  with_scaled_format(
      type, [&](auto format) SDM_INLINE_LAMBDA { to_lanes<decltype(format)>(padded, to); });
  with_plain_format(
      bank_type, [&](auto bank) SDM_INLINE_LAMBDA { restore_lanes<decltype(bank)>(to, *scale); });
  if (!kFull) zero_behind(to, width);
}

template <int kColumns, bool kFull>
SDM_HD void store_slice(RowType type, const LaneColumns<kColumns>& from, int32_t width, char* to) {
  alignas(64) char buffer[kColumns * sizeof(float)];
  char* target = kFull ? to : buffer;
  with_plain_format(
      type, [&](auto format) SDM_INLINE_LAMBDA { from_lanes<decltype(format)>(from, target); });
  if (!kFull) std::memcpy(to, buffer, row_bytes(type, width));
}

}  // namespace sdm
