#include <algorithm>

#include "kernels/common/float_mode.h"
#include "kernels/pair_matrices/pair_matrices.h"
#include "kernels/pair_matrices/pair_matrices_math.h"

namespace sdm {

void pair_matrices_host(const PairMatricesParams& params) {
  const int64_t rows = int64_t{params.num_chunks} * params.chunk_size;
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic, 16)
    for (int64_t i = 0; i < 2 * rows; ++i) {
      const int64_t row = i / 2;
      const bool of_reads = i % 2 == 1;
      float* out = (of_reads ? params.qk : params.a) + row * params.chunk_size;
      std::fill_n(out, params.chunk_size, 0.0f);
      const int64_t chunk = row / params.chunk_size;
      add_pair_row(params, chunk, static_cast<int32_t>(row % params.chunk_size), of_reads, out);
    }
  }
}

}  // namespace sdm
