#include <cstring>

#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/step/gx_gemm/gx_gemm.h"

namespace sdm {
namespace {

constexpr int32_t kTileColumns = 32;  // of d_dv, packed: 32 KiB for the longest chunk
constexpr int32_t kBlockRows = 4;     // of d_u, held in registers with their tile's columns
constexpr int32_t kUnitRows = 64;     // of d_u in one unit of work
constexpr int32_t kMaxChunkSize = 256;

// One unit of work: rows [first_row, end_row) of a chunk, columns [column, column + width).
struct Unit {
  int64_t chunk;
  int32_t column, width;
  int32_t first_row, end_row;
};

template <bool kWrite>
SDM_HD void prefetch_tile(const float* columns) {
  for (int32_t c = 0; c < kTileColumns; c += 16) __builtin_prefetch(columns + c, kWrite, 3);
}

// kRows rows from `row` on: the chain over j in order, one accumulator an element.
template <int kRows>
SDM_HD void add_rows(const GxGemmParams& params, const Unit& unit, const float* tile, int32_t row) {
  const int32_t c_size = params.chunk_size;
  const float* x = params.x + unit.chunk * c_size * c_size + row;
  const int64_t first = (unit.chunk * c_size + row) * params.hd + unit.column;
  for (int r = 0; r < kRows; ++r) {
    prefetch_tile<true>(params.d_u + first + r * params.hd);
    // What the next unit, most likely this thread's, packs.
    if (unit.column + 2 * kTileColumns <= params.hd) {
      prefetch_tile<false>(params.d_dv + first + r * params.hd + kTileColumns);
    }
  }
  float acc[kRows][kTileColumns] = {};
  for (int32_t j = 0; j < c_size; ++j) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kTileColumns; ++c) {
        acc[r][c] = fused(x[j * c_size + r], tile[j * kTileColumns + c], acc[r][c]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* d_u = params.d_u + first + int64_t{r} * params.hd;
    for (int32_t c = 0; c < unit.width; ++c) d_u[c] = plus(d_u[c], acc[r][c]);
  }
}

SDM_MULTIVERSION
void add_unit(const GxGemmParams& params, const Unit& unit) {
  // The tile's columns of d_dv, contiguous; zeros behind a narrow one.
  alignas(64) float tile[kMaxChunkSize * kTileColumns];
  const float* d_dv = params.d_dv + unit.chunk * params.chunk_size * params.hd + unit.column;
  for (int32_t j = 0; j < params.chunk_size; ++j) {
    float* to = tile + j * kTileColumns;
    if (unit.width < kTileColumns) std::memset(to, 0, kTileColumns * sizeof(float));
    std::memcpy(to, d_dv + int64_t{j} * params.hd, unit.width * sizeof(float));
  }

  int32_t row = unit.first_row;
  for (; row + kBlockRows <= unit.end_row; row += kBlockRows) {
    add_rows<kBlockRows>(params, unit, tile, row);
  }
  for (; row < unit.end_row; ++row) add_rows<1>(params, unit, tile, row);
}

int32_t at_most(int32_t value, int32_t most) { return value < most ? value : most; }

}  // namespace

void gx_gemm_host(const GxGemmParams& params) {
  const int32_t c_size = params.chunk_size, hd = params.hd;
  const int32_t row_units = (c_size + kUnitRows - 1) / kUnitRows;
  const int32_t tiles = (hd + kTileColumns - 1) / kTileColumns;
  const int64_t first_chunk = int64_t{params.step} * params.num_parallel;
  const int64_t units = int64_t{params.num_parallel} * row_units * tiles;
  const int64_t multiply_adds = int64_t{params.num_parallel} * c_size * c_size * hd;
#pragma omp parallel if (multiply_adds > kSerialMultiplyAdds)
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < units; ++i) {
      const auto column = static_cast<int32_t>(i % tiles) * kTileColumns;
      const auto row = static_cast<int32_t>(i / tiles % row_units) * kUnitRows;
      add_unit(params, {first_chunk + i / tiles / row_units, column,
                        at_most(hd - column, kTileColumns), row, at_most(c_size, row + kUnitRows)});
    }
  }
}

}  // namespace sdm
