// What one entry adds to its row of A or QK, for the host twin and the device kernel.
#pragma once
#include "kernels/chunk/pair_matrices/pair_matrices_params.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/records/chunk_runs.h"

namespace sdm {

// An entry that stands first of its token's (the writes, or the reads) in a slot that tokens wrote
// before: places mark all others. Its neighbours come with it: the device asks for a next entry's
// events before it walks from the last one.
struct PairedEntry {
  int32_t position;
  ChunkEvent before, here, after;
};

SDM_HD PairedEntry paired_entry(const ChunkEvent* events, int32_t size, int32_t position) {
  const int32_t next = position + 1 < size ? position + 1 : position;
  return {position, events[position - 1], events[position], events[next]};
}

// The weights of the entry's run.
SDM_HD double run_weight(const ChunkEvent* events, const PairedEntry& entry) {
  double sum = 0.0;
  sum += entry.here.weight;
  if (!record_last(entry.here.word) && same_run(entry.after.word, entry.here.word)) {
    for_run(events, entry.position + 1,
            [&](int32_t, const ChunkEvent& event) { sum += event.weight; });
  }
  return sum;
}

// Adds to row[t'] what the entry's token shares through its slot with the writes of tokens t'
// before it (up to it, for reads), from the nearest partner back to the slot's first.
SDM_HD void add_pairs(const ChunkEvent* events, const PairedEntry& entry, float* row) {
  const double own = run_weight(events, entry);
  for_writes_back(events, entry.position - 1, entry.before,
                  [&](int32_t token, double log, double weight) {
                    const double shared = own * weight * decay(entry.here.log, log);
                    row[token] = plus(row[token], static_cast<float>(shared));
                  });
}

}  // namespace sdm
