// The groups of a chunk's sorted events, one after the other: what the host twins walk. The device
// finds the same groups with a block's scan (chunk_groups.cuh).
#pragma once
#include "kernels/common/host_device.h"

namespace sdm {

// Where a group starts, and what precedes it in the chunk. Ordinals count groups with a write.
struct GroupStart {
  int32_t position;
  int32_t writes_before;
  int32_t ordinal;
};

// What one position adds to the counts.
struct EventKind {
  bool first;         // of its group
  bool write;         // padding too: it has its place among the sorted writes
  bool opens_writes;  // the first write of a group that is no padding
};

// Writes and opening writes of one warp's 32 positions: what a block keeps in shared memory.
struct WarpCounts {
  int32_t writes, opens;
};
inline constexpr int32_t kGroupScanBytes = 32 * sizeof(WarpCounts);

// List: int32_t size(); EventKind kind(position). Returns the counts behind the last event.
template <typename List, typename Visit>
GroupStart for_each_group(const List& list, const Visit& visit) {
  GroupStart next{0, 0, 0};
  for (; next.position < list.size(); ++next.position) {
    const EventKind kind = list.kind(next.position);
    if (kind.first) visit(next);
    next.writes_before += kind.write ? 1 : 0;
    next.ordinal += kind.opens_writes ? 1 : 0;
  }
  return next;
}

}  // namespace sdm
