// One row of A or QK, for the host twin and the device kernel.
#pragma once
#include "kernels/common/chunk_runs.h"
#include "kernels/common/ordered_math.h"
#include "kernels/pair_matrices/pair_matrices_params.h"

namespace sdm {

// Adds to row[t'] what token `token`'s writes (of A) or reads (of QK) share with the writes of
// tokens t' before it (up to it, for reads). The order: slot by slot, as the token names them, each
// from the nearest partner back to the slot's first.
SDM_HD void add_pair_row(const PairMatricesParams& params, int64_t chunk, int32_t token,
                         bool of_reads, float* row) {
  const int32_t per_token = params.num_writes + params.num_reads;
  const int64_t base = chunk * params.chunk_size * per_token;
  const ChunkEvent* events = params.events + base;
  const int32_t* places = params.places + base + int64_t{token} * per_token;
  const int32_t begin = of_reads ? params.num_writes : 0;
  const int32_t end = of_reads ? per_token : params.num_writes;
  for (int32_t column = begin; column < end; ++column) {
    const int32_t position = places[column];
    if (!opens_run(events, position)) continue;
    const double later = events[position].log;
    double own = 0.0;
    for_run(events, position, [&](int32_t, const ChunkEvent& event) { own += event.weight; });
    for_earlier_writes(events, position, [&](int32_t partner, double log, double weight) {
      row[partner] = plus(row[partner], static_cast<float>(own * weight * decay(later, log)));
    });
  }
}

}  // namespace sdm
