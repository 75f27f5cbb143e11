// Which snapshot row belongs to a group of write entries in the dense layout
// (docs/step_chain.md, section 3): the group's ordinal, the number of valid FIRSTs before it in its
// chunk.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

SDM_HD int64_t dense_snapshot_row(int64_t chunk, int32_t chunk_entries, int32_t ordinal) {
  return chunk * chunk_entries + ordinal;
}

// Valid FIRSTs of the chunk before `position`, which starts a block of 32.
SDM_HD int32_t groups_before(const int32_t* bpre, int64_t chunk, int32_t chunk_entries,
                             int32_t position) {
  const int32_t blocks = (chunk_entries + 31) / 32 + 1;
  return bpre[chunk * blocks + position / 32];
}

}  // namespace sdm
