// Which snapshot row belongs to a group of write entries in the per-entry layout
// (docs/step_chain.md, section 3).
#pragma once
#include "kernels/common/records/records.h"
#include "kernels/step/gx_pa2/gx_pa2_params.h"

namespace sdm {

// Per-entry layout: the place of the group's FIRST entry among the step's entries.
SDM_HD int64_t entry_snapshot_row(const GxPa2Params& params, int64_t chunk, uint32_t first_word) {
  const int64_t sequence = chunk % params.num_parallel;
  const int64_t token = sequence * params.chunk_size + record_token(first_word);
  return params.step * params.snap_step_rows + token * params.num_writes + record_index(first_word);
}

}  // namespace sdm
