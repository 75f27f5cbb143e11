#include "kernels/common/float_mode.h"
#include "kernels/common/multiversion.h"
#include "kernels/common/ordered_math.h"
#include "kernels/gx_gemm/gx_gemm.h"

namespace sdm {
namespace {

constexpr int32_t kTileColumns = 128;

// One row i of one chunk, columns [0, width): the chain over j in order, one accumulator a column.
SDM_MULTIVERSION
void row_tile(float* d_u, const float* x_column, int32_t x_stride, const float* d_dv, int32_t hd,
              int32_t chunk_size, int32_t width) {
  float acc[kTileColumns] = {};
  for (int32_t j = 0; j < chunk_size; ++j) {
    const float x = x_column[static_cast<int64_t>(j) * x_stride];
    const float* row = d_dv + static_cast<int64_t>(j) * hd;
    for (int32_t c = 0; c < width; ++c) acc[c] = fused(x, row[c], acc[c]);
  }
  for (int32_t c = 0; c < width; ++c) d_u[c] = plus(d_u[c], acc[c]);
}

}  // namespace

void gx_gemm_host(const GxGemmParams& params) {
  const int32_t c_size = params.chunk_size, hd = params.hd;
  const int64_t first_row = int64_t{params.step} * params.num_parallel * c_size;
  const int64_t rows = int64_t{params.num_parallel} * c_size;
  const int32_t tiles = (hd + kTileColumns - 1) / kTileColumns;
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t unit = 0; unit < rows * tiles; ++unit) {
      const int64_t row = first_row + unit / tiles;
      const int32_t column = static_cast<int32_t>(unit % tiles) * kTileColumns;
      const int32_t width = hd - column < kTileColumns ? hd - column : kTileColumns;
      const int64_t chunk = row / c_size, i = row % c_size;
      row_tile(params.d_u + row * hd + column, params.x + chunk * c_size * c_size + i, c_size,
               params.d_dv + chunk * c_size * hd + column, hd, c_size, width);
    }
  }
}

}  // namespace sdm
