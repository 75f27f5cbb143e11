#include <algorithm>
#include <cstring>

#include "kernels/chunk/chunk_readings/chunk_readings.h"
#include "kernels/chunk/chunk_readings/chunk_readings_math.h"
#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/rows/typed_values.h"

namespace sdm {
namespace {

constexpr int32_t kTileColumns = 32;  // the vector axis: 32 KiB of the longest chunk's deltas
constexpr int32_t kBlockRows = 4;     // held in registers with their tile's columns
constexpr int32_t kMaxChunkSize = 256;

using TileRow = float[kTileColumns];

// One unit of work: columns [first, first + width) of a chunk.
struct Unit {
  uint32_t chunk;
  int32_t first, width;
};

template <class Format>
SDM_HD void store_row(const float* reading, const TileRow& sums, int32_t width,
                      StoredBits<Format>* to) {
  for (int32_t c = 0; c < width; ++c) {
    to[c] = static_cast<StoredBits<Format>>(Format::encode(whole_reading(reading[c], sums[c])));
  }
}

// Rows [row, row + kRows) of a unit; delta holds its columns.
template <class Format, int kRows>
SDM_HD void make_rows(const ChunkReadingsParams& params, const Unit& unit, int32_t row,
                      const TileRow* delta, StoredBits<Format>* to, int64_t stride) {
  const int32_t size = params.chunk_size;
  const int64_t staged = int64_t{unit.chunk} * size + row;
  const float* qk = params.qk + staged * size;
  TileRow sums[kRows] = {};
  for (int32_t j = 0; j <= row; ++j) {
    for (int r = 0; r < kRows; ++r) {
      for (int32_t c = 0; c < kTileColumns; ++c) {
        sums[r][c] = add_reading_link(qk[r * size + j], delta[j][c], sums[r][c]);
      }
    }
  }
  for (int later = 1; later < kRows; ++later) {
    const TileRow& link = delta[row + later];
    for (int r = later; r < kRows; ++r) {
      for (int32_t c = 0; c < kTileColumns; ++c) {
        sums[r][c] = add_reading_link(qk[r * size + row + later], link[c], sums[r][c]);
      }
    }
  }
  const float* reading = params.reading + staged * params.hd + unit.first;
  for (int r = 0; r < kRows; ++r, reading += params.hd, to += stride) {
    if (unit.width == kTileColumns) {
      store_row<Format>(reading, sums[r], kTileColumns, to);
    } else {
      store_row<Format>(reading, sums[r], unit.width, to);
    }
  }
}

template <class Format>
SDM_HD void make_unit_of(const ChunkReadingsParams& params, const Unit& unit) {
  const ChunkTokens tokens = reading_tokens(params, unit.chunk);
  const int32_t count = tokens.count(params.chunk_size);
  const int64_t first = int64_t{unit.chunk} * params.chunk_size;

  alignas(64) TileRow delta[kMaxChunkSize];
  const float* from = params.delta + first * params.hd + unit.first;
  for (int32_t j = 0; j < count; ++j) {
    if (unit.width < kTileColumns) std::fill_n(delta[j], kTileColumns, 0.0f);
    std::memcpy(delta[j], from + int64_t{j} * params.hd, sizeof(float) * unit.width);
  }

  const int64_t stride = tokens.apart * params.hd;
  auto* to = static_cast<StoredBits<Format>*>(params.readings) + tokens.first_row() * params.hd +
             unit.first;
  int32_t row = 0;
  for (; row + kBlockRows <= count; row += kBlockRows) {
    make_rows<Format, kBlockRows>(params, unit, row, delta, to + row * stride, stride);
  }
  for (; row < count; ++row) {
    make_rows<Format, 1>(params, unit, row, delta, to + row * stride, stride);
  }
}

SDM_MULTIVERSION
void make_unit(const ChunkReadingsParams& params, const Unit& unit) {
  with_plain_format(params.readings_type, [&](auto format) SDM_INLINE_LAMBDA {
    make_unit_of<decltype(format)>(params, unit);
  });
}

}  // namespace

void chunk_readings_host(const ChunkReadingsParams& params) {
  const int32_t tiles = (params.hd + kTileColumns - 1) / kTileColumns;
  const int64_t units = int64_t{params.num_chunks} * tiles;
  const int64_t multiply_adds =
      int64_t{params.num_chunks} * params.chunk_size * params.chunk_size * params.hd / 2;
#pragma omp parallel if (multiply_adds > kSerialMultiplyAdds)
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < units; ++i) {
      const auto first = static_cast<int32_t>(i % tiles) * kTileColumns;
      make_unit(params, {static_cast<uint32_t>(i / tiles), first,
                         std::min(kTileColumns, params.hd - first)});
    }
  }
}

}  // namespace sdm
