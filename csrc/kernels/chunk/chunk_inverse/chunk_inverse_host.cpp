#include <algorithm>
#include <cstring>

#include "kernels/chunk/chunk_inverse/chunk_inverse.h"
#include "kernels/chunk/chunk_inverse/chunk_inverse_math.h"
#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"

namespace sdm {
namespace {

constexpr int32_t kTileColumns = 32;  // the vector axis: 32 KiB of X for the longest chunk
constexpr int32_t kBlockRows = 4;     // held in registers with their tile's columns
constexpr int32_t kMaxChunkSize = 256;

using TileRow = float[kTileColumns];

// One unit of work: columns [first, first + width) of a chunk.
struct Unit {
  int64_t chunk;
  int32_t first, width;
};

// A link with row `place` of the tile's X, of the columns c < place: the others have none.
template <TriangleChain kChain>
SDM_HD void add_own_link(float factor, const TileRow& x, int32_t place, TileRow& sums) {
  for (int32_t c = 0; c < kTileColumns; ++c) {
    const float sum = add_link<kChain>(factor, x[c], sums[c]);
    sums[c] = c < place ? sum : sums[c];
  }
}

// The links of kRows rows of a matrix with rows [0, end) of the tile's X.
template <TriangleChain kChain, int kRows>
SDM_HD void add_links(const float* rows, int32_t stride, const TileRow* x, int32_t end,
                      TileRow (&sums)[kRows]) {
  const int32_t own = std::min(end, kTileColumns);
  for (int32_t j = 0; j < own; ++j) {
    for (int r = 0; r < kRows; ++r) add_own_link<kChain>(rows[r * stride + j], x[j], j, sums[r]);
  }
  for (int32_t j = own; j < end; ++j) {
    for (int r = 0; r < kRows; ++r) {
      for (int32_t c = 0; c < kTileColumns; ++c) {
        sums[r][c] = add_link<kChain>(rows[r * stride + j], x[j][c], sums[r][c]);
      }
    }
  }
}

// The last links of row `place` of the tile, a row of its matrix: of its columns [0, end).
template <TriangleChain kChain>
SDM_HD void add_own_row(const float* row, int32_t end, TileRow& sums) {
  for (int32_t c = 0; c < std::min(end, kTileColumns); ++c)
    sums[c] = add_own<kChain>(row[c], sums[c]);
}

template <int kRows>
SDM_HD void store_rows(const TileRow (&from)[kRows], int32_t width, int32_t stride, float* to) {
  for (int r = 0; r < kRows; ++r) {
    for (int32_t c = 0; c < width; ++c) to[r * stride + c] = from[r][c];
  }
}

// kRows rows of X, and of QX if they are kept, from row `row` on; x holds the tile's X from row
// `unit.first` on.
template <int kRows>
SDM_HD void make_rows(const ChunkInverseParams& params, const Unit& unit, int32_t row, TileRow* x) {
  const int32_t size = params.chunk_size, place = row - unit.first;
  const int64_t at = (unit.chunk * size + row) * size + unit.first;
  const float* system = params.system + at;
  const float* qk = params.qk + at;
  {
    TileRow sums[kRows] = {};
    add_links<TriangleChain::kInverse>(system, size, x, place, sums);
    for (int r = 0; r < kRows; ++r) {
      add_own_row<TriangleChain::kInverse>(system + r * size, place + r, sums[r]);
      if (place + r < kTileColumns) sums[r][place + r] = 1.0f;
      for (int later = r + 1; later < kRows; ++later) {
        add_own_link<TriangleChain::kInverse>(system[later * size + place + r], sums[r], place + r,
                                              sums[later]);
      }
    }
    std::memcpy(x + place, sums, sizeof(sums));
    if (params.x == nullptr) return;
    store_rows(sums, unit.width, size, params.x + at);
  }
  TileRow sums[kRows] = {};
  add_links<TriangleChain::kProduct>(qk, size, x, place + 1, sums);
  for (int r = 1; r < kRows; ++r) {
    for (int later = r; later < kRows; ++later) {
      add_own_link<TriangleChain::kProduct>(qk[later * size + place + r], x[place + r], place + r,
                                            sums[later]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    add_own_row<TriangleChain::kProduct>(qk + r * size, place + r + 1, sums[r]);
  }
  store_rows(sums, unit.width, size, params.qx + at);
}

// Rows [row, row + kRows) of X become columns of scaled.
template <int kRows>
SDM_HD void store_scaled(const ChunkInverseParams& params, const Unit& unit, int32_t row,
                         const TileRow* x) {
  const int32_t size = params.chunk_size;
  const float* beta = params.beta_rows + unit.chunk * size + unit.first;
  float* to = params.scaled + (unit.chunk * size + unit.first) * size + row;
  for (int32_t c = 0; c < unit.width; ++c) {
    for (int r = 0; r < kRows; ++r) {
      const float value = times(beta[c], x[row + r - unit.first][c]);
      to[c * size + r] = row + r < unit.first + c ? 0.0f : value;
    }
  }
}

SDM_MULTIVERSION
void make_unit(const ChunkInverseParams& params, const Unit& unit) {
  alignas(64) TileRow x[kMaxChunkSize];
  const int32_t size = params.chunk_size;
  const int64_t matrix = unit.chunk * size * size;
  const int32_t above = params.x != nullptr ? unit.first : 0;
  for (int32_t i = 0; i < above; ++i) {
    std::fill_n(params.x + matrix + i * size + unit.first, unit.width, 0.0f);
    std::fill_n(params.qx + matrix + i * size + unit.first, unit.width, 0.0f);
  }
  for (int32_t c = 0; c < unit.width; ++c) {
    std::fill_n(params.scaled + matrix + (unit.first + c) * size, unit.first, 0.0f);
  }

  int32_t row = unit.first;
  for (; row + kBlockRows <= size; row += kBlockRows) {
    make_rows<kBlockRows>(params, unit, row, x);
  }
  for (; row < size; ++row) make_rows<1>(params, unit, row, x);

  constexpr int kScaledRows = 16;  // a line of the transpose
  for (row = unit.first; row + kScaledRows <= size; row += kScaledRows) {
    store_scaled<kScaledRows>(params, unit, row, x);
  }
  for (; row < size; ++row) store_scaled<1>(params, unit, row, x);
}

}  // namespace

void chunk_inverse_host(const ChunkInverseParams& params) {
  const int32_t size = params.chunk_size, tiles = (size + kTileColumns - 1) / kTileColumns;
  const int64_t units = int64_t{params.num_chunks} * tiles;
  const int64_t multiply_adds = int64_t{params.num_chunks} * size * size * size / 3;
#pragma omp parallel if (multiply_adds > kSerialMultiplyAdds)
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < units; ++i) {
      const auto first = static_cast<int32_t>(i % tiles) * kTileColumns;
      make_unit(params, {i / tiles, first, std::min(kTileColumns, size - first)});
    }
  }
}

}  // namespace sdm
