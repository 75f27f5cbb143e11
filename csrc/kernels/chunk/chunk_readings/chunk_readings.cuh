// chunk_readings on the device: a block makes a band of 64 rows in a tile of columns. Squares of
// qk and the deltas of their columns come through shared memory, sums stay in registers. An
// ordinary launch after the chain: it waits for no grid.
#pragma once
#include "kernels/chunk/chunk_readings/chunk_readings_math.h"
#include "kernels/chunk/chunk_readings/chunk_readings_params.h"
#include "kernels/chunk/chunk_readings/chunk_readings_tile.h"
#include "kernels/common/ptx/ptx.cuh"
#include "kernels/common/rows/row_bits.h"
#include "kernels/common/rows/typed_values.h"

namespace sdm {

// kRows: how the readings are stored; hd is a multiple of 4, and every row is aligned to four of
// its elements. Or kAnyRow.
template <ReadingTile kTile, RowType kRows>
class ReadingBlock {
 public:
  static __device__ __forceinline__ void run(const ChunkReadingsParams& params) {
    const uint32_t chunk = blockIdx.z * gridDim.y + blockIdx.y;
    if (chunk >= static_cast<uint32_t>(params.num_chunks)) return;
    const ReadingPlace place = reading_place(blockIdx.x, params.chunk_size, params.hd, kTile);
    const ChunkTokens tokens = reading_tokens(params, chunk);
    const int32_t rows = tokens.count(params.chunk_size) - place.band * kReadingBand;
    if (rows <= 0) return;
    const int64_t token = int64_t{chunk} * params.chunk_size;
    const ReadingBlock block(params, place, token, min(rows, kReadingBand));
    Sums sums = {};
#pragma unroll 1
    for (int32_t square = 0;; ++square) {
      block.fetch(square);
      if (square == place.band) break;
      if (block.column_ < block.columns_) block.add_square(sums);
      __syncthreads();  // all have read it
    }
    if (block.column_ < block.columns_) block.add_triangle(sums, block.first_row(tokens));
  }

 private:
  static constexpr int32_t kWidth = kTile.width, kThreads = kTile.threads();
  static constexpr bool kFour = kRows != kAnyRow;
  using Columns = float[kReadingColumns];  // of one row, a thread's
  using Sums = Columns[kReadingRows];

  // Four groups of a warp share 32 columns. Lanes beside each other have the same columns, and
  // those two apart the same rows: then loads of 16 bytes a lane, of deltas or of qk, take the
  // fewest passes through the banks.
  __device__ __forceinline__ ReadingBlock(const ChunkReadingsParams& params,
                                          const ReadingPlace& place, int64_t token, int32_t rows)
      : params_(params),
        qk_(reinterpret_cast<float*>(ptx::dynamic_shared())),
        delta_(qk_ + kReadingQkFloats),
        group_(static_cast<int32_t>(threadIdx.x / 32 % 2 * 4 + threadIdx.x / 16 % 2 * 2 +
                                    threadIdx.x % 2)),
        column_(static_cast<int32_t>(threadIdx.x / 64 * 32 + threadIdx.x / 2 % 8 * 4)),
        place_(place),
        token_(token),
        rows_(rows),
        columns_(min(params.hd - place.column, kWidth)) {
    static_assert(kReadingGroups == 8 && kReadingColumns == 4);
  }

  // A square of qk, on the diagonal what lies on and below it, and the deltas of its columns. What
  // lies past the last row is left as it is: no element that exists is computed from it.
  __device__ __forceinline__ void fetch(int32_t square) const {
    const bool diagonal = square == place_.band;
    const int32_t size = params_.chunk_size, first = square * kReadingBand;
    const float* qk = params_.qk + (token_ + place_.band * kReadingBand) * size + first;
    const Area area{rows_, kReadingBand, diagonal};
    if (size % 4 == 0 && reinterpret_cast<uintptr_t>(params_.qk) % 16 == 0) {
      copy<4, kReadingBand>(area, qk_, kReadingQkStride, qk, size);
    } else {
      copy<1, kReadingBand>(area, qk_, kReadingQkStride, qk, size);
    }
    const float* delta = params_.delta + (token_ + first) * params_.hd + place_.column;
    copy<kFour ? 4 : 1, kWidth>({diagonal ? rows_ : kReadingBand, columns_, false}, delta_, kWidth,
                                delta, params_.hd);
    ptx::copy_commit();
    ptx::copy_wait<0>();
    __syncthreads();
  }

  // Of a matrix: rows of some columns, or of those up to each row's own.
  struct Area {
    int32_t rows, columns;
    bool triangle;
  };
  template <int32_t kFloats, int32_t kPitch>
  __device__ __forceinline__ void copy(const Area& area, float* to, int32_t to_stride,
                                       const float* from, int32_t from_stride) const {
    constexpr int32_t kPieces = kPitch / kFloats, kTogether = kThreads / kPieces;
    const auto first = static_cast<int32_t>(threadIdx.x / kPieces);
    const auto column = static_cast<int32_t>(threadIdx.x % kPieces) * kFloats;
    if (column >= area.columns) return;
    to += first * to_stride + column;
    from += int64_t{first} * from_stride + column;
    constexpr int32_t kUnrolled = kFloats == 4 ? kReadingBand / kTogether : 1;
#pragma unroll kUnrolled
    for (int32_t row = first; row < first + kReadingBand; row += kTogether) {
      if (row < area.rows && (!area.triangle || column <= row)) {
        ptx::copy_async<kFloats * 4>(to, from);
      }
      to += kTogether * to_stride;
      from += kTogether * from_stride;
    }
  }

  // The deltas of four links.
  struct Links {
    float4 of[4];
  };
  __device__ __forceinline__ Links links(int32_t j) const {
    Links found;
#pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
      found.of[k] = *reinterpret_cast<const float4*>(delta_ + (j + k) * kWidth + column_);
    }
    return found;
  }
  __device__ __forceinline__ float4 qk_of(int32_t row, int32_t j) const {
    const int32_t at = (row * kReadingGroups + group_) * kReadingQkStride + j;
    return *reinterpret_cast<const float4*>(qk_ + at);
  }

  // Four links of a row, the first `count` of them.
  static __device__ __forceinline__ void add_links(const float4& qk, const Links& links,
                                                   int32_t count, Columns& sum) {
    const float of[4] = {qk.x, qk.y, qk.z, qk.w};
#pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
      if (k >= count) continue;
      sum[0] = add_reading_link(of[k], links.of[k].x, sum[0]);
      sum[1] = add_reading_link(of[k], links.of[k].y, sum[1]);
      sum[2] = add_reading_link(of[k], links.of[k].z, sum[2]);
      sum[3] = add_reading_link(of[k], links.of[k].w, sum[3]);
    }
  }

  // A square left of the diagonal: every row takes every link.
  __device__ __forceinline__ void add_square(Sums& sums) const {
#pragma unroll 1
    for (int32_t j = 0; j < kReadingBand; j += 4) {
      const Links of = links(j);
#pragma unroll
      for (int32_t row = 0; row < kReadingRows; ++row) add_links(qk_of(row, j), of, 4, sums[row]);
    }
  }

  // Where a thread's row comes from and goes to.
  struct RowPlace {
    const float* from;
    char* to;
    int64_t to_stride;
    int32_t from_stride;
  };
  __device__ __forceinline__ RowPlace first_row(const ChunkTokens& tokens) const {
    const int32_t row = place_.band * kReadingBand + group_, column = place_.column + column_;
    const int64_t to = tokens.row(tokens.place(row)) * params_.hd + column;
    return {params_.reading + (token_ + row) * params_.hd + column,
            static_cast<char*>(params_.readings) + row_bytes(type(), to),
            row_bytes(type(), tokens.apart * kReadingGroups * params_.hd),
            kReadingGroups * params_.hd};
  }
  __device__ __forceinline__ RowType type() const {
    return kRows == kAnyRow ? params_.readings_type : kRows;
  }

  // The square on the diagonal, eight links at a time: with each of these a row of the thread's is
  // whole. Its old reading is on its way meanwhile.
  __device__ __forceinline__ void add_triangle(Sums& sums, RowPlace at) const {
#pragma unroll
    for (int32_t whole = 0; whole < kReadingRows; ++whole) {
      if (whole * kReadingGroups >= rows_) break;
      const bool exists = whole * kReadingGroups + group_ < rows_;
      Columns old = {};
      if (exists) load_reading(at.from, old);
#pragma unroll 1
      for (int32_t k = 0; k < kReadingGroups; k += 4) {
        const int32_t j = whole * kReadingGroups + k;
        const Links of = links(j);
        add_links(qk_of(whole, j), of, group_ + 1 - k, sums[whole]);
#pragma unroll
        for (int32_t row = whole + 1; row < kReadingRows; ++row) {
          add_links(qk_of(row, j), of, 4, sums[row]);
        }
      }
      if (exists) store(at.to, old, sums[whole]);
      at.from += at.from_stride;
      at.to += at.to_stride;
    }
  }

  __device__ __forceinline__ void load_reading(const float* from, Columns& to) const {
    if constexpr (kFour) {
      const float4 four = *reinterpret_cast<const float4*>(from);
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
#pragma unroll
      for (int32_t c = 0; c < kReadingColumns; ++c) {
        if (column_ + c < columns_) to[c] = from[c];
      }
    }
  }

  __device__ __forceinline__ void store(char* to, const Columns& old, const Columns& sum) const {
    Columns y;
#pragma unroll
    for (int32_t c = 0; c < kReadingColumns; ++c) y[c] = whole_reading(old[c], sum[c]);
    if constexpr (kRows == RowType::kFloat32) {
      *reinterpret_cast<float4*>(to) = make_float4(y[0], y[1], y[2], y[3]);
    } else if constexpr (kRows == RowType::kBFloat16) {
      *reinterpret_cast<uint2*>(to) =
          make_uint2(ptx::pack_bf16(y[0], y[1]), ptx::pack_bf16(y[2], y[3]));
    } else {
      static_assert(kRows == kAnyRow);
#pragma unroll
      for (int32_t c = 0; c < kReadingColumns; ++c) {
        if (column_ + c < columns_) store_value(to, params_.readings_type, c, y[c]);
      }
    }
  }

  const ChunkReadingsParams& params_;
  float* const qk_;
  float* const delta_;
  const int32_t group_;   // the remainder by 8 of the thread's rows
  const int32_t column_;  // of the tile, the thread's first
  const ReadingPlace place_;
  const int64_t token_;           // the chunk's first, staged
  const int32_t rows_, columns_;  // of the band and the tile
};

}  // namespace sdm
