// A matrix of rows as one thread sees it: its own columns of any row.
#pragma once
#include "kernels/common/rows/row_piece.cuh"

namespace sdm {

// Columns [column, column + count) of a row. count is 0 past the slice, and between 0 and kCols
// only for kAnyRow: elsewhere hd and the slice are multiples of kCols.
struct Columns {
  int32_t column;
  int32_t count;
};

// How rows are stored. For kAnyRow it decides at run time, for every other kType it repeats it.
struct StoredAs {
  RowType type;
  RowType bank_type;  // what a quantized row is decoded for
};

template <RowType kRowType, int kCols>
class ThreadRows {
 public:
  static constexpr RowType kType = kRowType;
  using Raw = RawPiece<kType, kCols>;

  // Rows first_row, first_row + 1, .. of `rows` [any, hd].
  __device__ __forceinline__ ThreadRows(const void* rows, StoredAs, int64_t first_row, int32_t hd,
                                        Columns columns)
      : rows_(static_cast<const char*>(rows) + bytes(first_row * hd)),
        column_bytes_(static_cast<uint32_t>(bytes(columns.column))),
        row_bytes_(static_cast<uint32_t>(bytes(hd))),
        active_(columns.count != 0) {}

  __device__ __forceinline__ Raw load(int32_t row, float /*scale*/ = 1.0f) const {
    return active_ ? load_bits<sizeof(Raw)>(address(row)) : Raw{};
  }
  // Through L1: for rows that many teams of an SM read, and that nothing writes meanwhile.
  __device__ __forceinline__ Raw load_cached(int32_t row) const {
    return active_ ? read_bits_now<sizeof(Raw)>(address(row)) : Raw{};
  }
  // Into this thread's part of a stage of a ring.
  __device__ __forceinline__ void fetch(Raw* to, int32_t row, float /*scale*/) const {
    if (active_) fetch_bits<sizeof(Raw)>(to, address(row));
  }
  // The same for a PlanesRing, through L1.
  template <class Ring>
  __device__ __forceinline__ void fetch_cached(const Ring& ring, int32_t stage, int32_t row) const {
    if (active_) fetch_planes_cached<sizeof(Raw)>(ring[stage], Ring::kPlaneBytes, address(row));
  }
  template <class Ring>
  __device__ __forceinline__ void clear_unused(const Ring& ring, int32_t stage) const {
    if (active_) return;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Raw)) / 16; ++i) {
      *reinterpret_cast<uint4*>(ring[stage] + i * Ring::kPlaneBytes) = make_uint4(0, 0, 0, 0);
    }
  }
  // The same for a row that may be -1, none: zeros then, and past the slice.
  __device__ __forceinline__ void fetch_or_clear(Raw* to, int32_t row) const {
    if (active_ && row >= 0) {
      fetch_bits<sizeof(Raw)>(to, address(row));
    } else {
      *to = Raw{};
    }
  }
  // What fetch() will leave there past the slice: zeros. Once per stage, before its first fetch.
  __device__ __forceinline__ void clear_unused(Raw* to) const {
    if (!active_) *to = Raw{};
  }
  __device__ __forceinline__ void store(int32_t row, const Raw& raw) const {
    if (active_) store_bits<sizeof(Raw)>(address(row), raw);
  }

 private:
  static __device__ __forceinline__ int64_t bytes(int64_t columns) {
    return columns * element_bits(kType) / 8;
  }
  __device__ __forceinline__ char* address(int32_t row) const {
    return const_cast<char*>(rows_) +
           (uint64_t{static_cast<uint32_t>(row)} * row_bytes_ + column_bytes_);
  }

  // Apart, so that what all threads share needs no registers of theirs.
  const char* rows_;
  uint32_t column_bytes_;
  uint32_t row_bytes_;
  bool active_;
};

template <int kCols>
class ThreadRows<kAnyRow, kCols> {
 public:
  static constexpr RowType kType = kAnyRow;
  using Raw = RawPiece<kAnyRow, kCols>;

  __device__ __forceinline__ ThreadRows(const void* rows, StoredAs stored, int64_t first_row,
                                        int32_t hd, Columns columns)
      : first_(static_cast<const char*>(rows) + first_row * hd * element_bits(stored.type) / 8),
        row_bytes_(int64_t{hd} * element_bits(stored.type) / 8),
        stored_(stored),
        columns_(columns) {}

  __device__ __forceinline__ Raw load(int32_t row, float scale = 1.0f) const {
    Raw raw{};
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      if (c < columns_.count) raw.word[c] = float_to_bits(element(row, columns_.column + c, scale));
    }
    return raw;
  }
  __device__ __forceinline__ Raw load_cached(int32_t row) const { return load(row); }
  __device__ __forceinline__ void fetch(Raw* to, int32_t row, float scale) const {
    *to = load(row, scale);
  }
  template <class Ring>
  __device__ __forceinline__ void fetch_cached(const Ring& ring, int32_t stage, int32_t row) const {
    static_assert(sizeof(Raw) == 16);
    *reinterpret_cast<Raw*>(ring[stage]) = load(row);
  }
  template <class Ring>
  __device__ __forceinline__ void clear_unused(const Ring&, int32_t) const {}
  __device__ __forceinline__ void fetch_or_clear(Raw* to, int32_t row) const {
    *to = row >= 0 ? load(row) : Raw{};
  }
  __device__ __forceinline__ void clear_unused(Raw*) const {}
  __device__ __forceinline__ void store(int32_t row, const Raw& raw) const {
    char* to = const_cast<char*>(address(row));
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int32_t column = columns_.column + c;
      if (c >= columns_.count) break;
      with_plain_format(stored_.type, [&](auto format) {
        using Format = decltype(format);
        reinterpret_cast<StoredBits<Format>*>(to)[column] =
            static_cast<StoredBits<Format>>(Format::encode(bits_to_float(raw.word[c])));
      });
    }
  }

 private:
  __device__ __forceinline__ const char* address(int32_t row) const {
    return first_ + row * row_bytes_;
  }
  __device__ __forceinline__ float element(int32_t row, int32_t column, float scale) const {
    const char* from = address(row);
    return with_row_format(stored_.type, [&](auto format) {
      using Format = decltype(format);
      constexpr int kPerByte = kCodesPerByte<Format>;
      const uint32_t word =
          ptx::load_l2(reinterpret_cast<const StoredBits<Format>*>(from) + column / kPerByte);
      const float value =
          Format::decode(column_bits<Format>(word, static_cast<uint32_t>(column) % kPerByte));
      if constexpr (Format::kScaled) return restored(stored_.bank_type, value, scale);
      return value;
    });
  }

  const char* first_;
  int64_t row_bytes_;
  StoredAs stored_;
  Columns columns_;
};

}  // namespace sdm
