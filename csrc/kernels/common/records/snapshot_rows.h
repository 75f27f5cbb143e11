// Which snapshot row belongs to a group of write entries in the dense layout
// (docs/step_chain.md, section 3): of its chunk's rows the one of the group's ordinal, the number
// of valid FIRSTs before it in its chunk.
#pragma once
#include <cstdint>

#include "kernels/common/math/host_device.h"

namespace sdm {

// A chunk may have fewer rows than entries: as many as it has groups, or more. Whatever ordinals
// the operands make up, no row that is written is another chunk's.
SDM_HD int32_t row_of_ordinal(int32_t ordinal, int32_t chunk_rows) {
  const auto asked = static_cast<uint32_t>(ordinal), last = static_cast<uint32_t>(chunk_rows - 1);
  return static_cast<int32_t>(asked < last ? asked : last);
}

SDM_HD int64_t dense_snapshot_row(int64_t chunk, int32_t chunk_rows, int32_t ordinal) {
  return chunk * chunk_rows + ordinal;
}

// Valid FIRSTs of the chunk before `position`, which starts a block of 32.
SDM_HD int32_t groups_before(const int32_t* bpre, int64_t chunk, int32_t chunk_entries,
                             int32_t position) {
  const int32_t blocks = (chunk_entries + 31) / 32 + 1;
  return bpre[chunk * blocks + position / 32];
}

}  // namespace sdm
