// Which snapshot row belongs to a group of write records (step_chain.md, section 3).
#pragma once
#include "kernels/common/records.h"
#include "kernels/gx_pa2/gx_pa2_params.h"

namespace sdm {

SDM_HD bool record_counts(uint32_t word) {
  return (word & (kRecordFirst | kRecordInvalid)) == kRecordFirst;
}

// Dense layout: the group's ordinal = the number of valid FIRSTs before it in its chunk.
SDM_HD int64_t dense_snapshot_row(const GxPa2Params& params, int64_t chunk, int32_t ordinal) {
  return chunk * params.chunk_size * params.num_writes + ordinal;
}

// Per-entry layout: the place of the group's FIRST entry among the step's entries.
SDM_HD int64_t entry_snapshot_row(const GxPa2Params& params, int64_t chunk, uint32_t first_word) {
  const int64_t stream = chunk % params.num_parallel;
  const int64_t token = stream * params.chunk_size + record_token(first_word);
  return params.step * params.snap_step_rows + token * params.num_writes + record_index(first_word);
}

}  // namespace sdm
