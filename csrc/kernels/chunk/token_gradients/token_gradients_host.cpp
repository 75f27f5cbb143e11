#include "kernels/chunk/token_gradients/token_gradients.h"
#include "kernels/chunk/token_gradients/token_gradients_math.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/rows/typed_values.h"

namespace sdm {
namespace {

// Every lane's sum. The vector axis is the lane.
SDM_HD void add_lanes(const float* d_u, const float* innovation, int32_t hd, float* sums) {
  for (int32_t first = 0; first < hd; first += kLaneStride) {
    const int32_t left = hd - first;
    for (int32_t part = 0; part < kLaneColumns; ++part) {
      const int32_t lanes = left < kLaneStride ? (left - part + 3) / kLaneColumns : kLanes;
      for (int32_t l = 0; l < lanes; ++l) {
        const int32_t column = first + kLaneColumns * l + part;
        sums[l] = add_product(d_u[column], innovation[column], sums[l]);
      }
    }
  }
}

SDM_MULTIVERSION
void token_row(const TokenGradientsParams& params, int64_t staged, const UnstagedRows& rows) {
  const float* d_u = params.d_u + staged * params.hd;
  const float beta = params.beta_rows[staged];
  const int64_t to = rows.dv * params.hd;
  with_plain_format(params.dv_type, [&](auto format) SDM_INLINE_LAMBDA {
    using Bits = StoredBits<decltype(format)>;
    Bits* dv = static_cast<Bits*>(params.dv) + to;
    for (int32_t c = 0; c < params.hd; ++c) {
      dv[c] = static_cast<Bits>(format.encode(times(beta, d_u[c])));
    }
  });
  float sums[kLanes] = {};
  add_lanes(d_u, params.innovation + staged * params.hd, params.hd, sums);
  for (int32_t count = kLanes / 2; count > 0; count /= 2) {
    for (int32_t i = 0; i < count; ++i) sums[i] = plus(sums[2 * i], sums[2 * i + 1]);
  }
  store_value(params.dbeta, params.dbeta_type, rows.dbeta, sums[0]);
}

}  // namespace

void token_gradients_host(const TokenGradientsParams& params) {
  const int64_t tokens = int64_t{params.num_chunks} * params.chunk_size;
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t staged = 0; staged < tokens; ++staged) {
      const UnstagedRows rows = unstaged_rows(params, staged);
      if (rows.real) token_row(params, staged, rows);
    }
  }
}

}  // namespace sdm
