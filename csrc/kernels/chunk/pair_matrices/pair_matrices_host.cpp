#include <algorithm>

#include "kernels/chunk/pair_matrices/pair_matrices.h"
#include "kernels/chunk/pair_matrices/pair_matrices_math.h"
#include "kernels/common/math/float_mode.h"

namespace sdm {
namespace {

// Row `row` of all chunks' A or QK, added up in `out`. The order: slot by slot, as the token names
// them.
void add_row(const PairMatricesParams& params, int64_t row, bool of_reads, float* out) {
  const int32_t per_token = params.num_writes + params.num_reads;
  const int32_t size = params.chunk_size * per_token;
  const ChunkEvent* events = params.events + row / params.chunk_size * size;
  const int32_t* places = params.places + row * per_token;
  const int32_t begin = of_reads ? params.num_writes : 0;
  const int32_t end = of_reads ? per_token : params.num_writes;
  std::fill_n(out, params.chunk_size, 0.0f);
  for (int32_t column = begin; column < end; ++column) {
    if (places[column] < 0) continue;
    add_pairs(events, paired_entry(events, size, places[column]), out);
  }
}

}  // namespace

void pair_matrices_host(const PairMatricesParams& params) {
  const int64_t rows = int64_t{params.num_chunks} * params.chunk_size;
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic, 16)
    for (int64_t i = 0; i < 2 * rows; ++i) {
      const int64_t row = i / 2, at = row * params.chunk_size;
      if (i % 2 == 1) {
        add_row(params, row, true, params.qk + at);
        continue;
      }
      float* system = params.system + at;
      add_row(params, row, false, system);
      if (params.a != nullptr) std::copy_n(system, params.chunk_size, params.a + at);
      for (int32_t t = 0; t < params.chunk_size; ++t) {
        system[t] = times(params.beta_rows[row], system[t]);
      }
    }
  }
}

}  // namespace sdm
