// A chunk's sorted events as a warp sees them, 32 positions at a time: a lane holds one, and groups
// are ranges of lanes.
#pragma once
#include "kernels/chunk/chunk_prepare/chunk_prepare_block.h"

namespace sdm {

// Lanes before `lane`, 0..32.
__device__ __forceinline__ uint32_t lanes_below(int32_t lane) {
  return lane >= 32 ? ~0u : (1u << lane) - 1u;
}

// The highest lane of a mask that is not empty.
__device__ __forceinline__ int32_t top_lane(uint32_t lanes) { return 31 - __clz(lanes); }

// One sorted position; past the chunk's end there is neither a write nor a read.
struct LaneEvent {
  int32_t position;
  bool inside;
  bool last;  // of its group; true past the end
  int32_t slot;
  int32_t place;
  Entry entry;

  __device__ bool is_write() const { return inside && !entry.is_read; }
  __device__ bool adds_writes() const { return is_write() && slot != kNoSlot; }
  // The same for the events of one run.
  __device__ int32_t run() const { return entry.token << 1 | (entry.is_read ? 1 : 0); }
};

__device__ __forceinline__ LaneEvent lane_event(const ChunkInputs& inputs, int32_t position) {
  LaneEvent event{position, position < inputs.size(), true, kNoSlot, 0, {0, 0, false}};
  if (!event.inside) return event;
  event.slot = inputs.slot(position);
  event.last = inputs.last(position, event.slot);
  event.place = inputs.place(position);
  event.entry = inputs.entry(event.place);
  return event;
}

// Whether a group starts at `position`; the warp's lanes all ask.
__device__ __forceinline__ bool group_starts(const ChunkInputs& inputs, int32_t position) {
  return position == 0 || inputs.last(position - 1, inputs.slot(position - 1));
}

// The writes of positions [begin, end), and the groups with a write that start there: the warp
// reads on where the last one's first write is behind the end. Both are wanted, or writes alone.
__device__ __forceinline__ GroupCounts count_groups(const ChunkInputs& inputs, PositionRange range,
                                                    bool groups, int32_t lane) {
  GroupCounts counts{0, 0};
  if (range.begin >= range.end) return counts;
  if (!groups) {
#pragma unroll 4
    for (int32_t at = range.begin; at < range.end; at += 32) {
      const int32_t position = at + lane;
      const bool write = position < range.end && !inputs.entry(inputs.place(position)).is_read;
      counts.writes += __popc(__ballot_sync(~0u, write));
    }
    return counts;
  }
  bool starts = group_starts(inputs, range.begin);
  bool open = false;  // a group that started here and has no write so far
  for (int32_t at = range.begin; at < range.end || open; at += 32) {
    const LaneEvent event = lane_event(inputs, at + lane);
    const uint32_t own = lanes_below(range.end > at ? range.end - at : 0);
    counts.writes += __popc(__ballot_sync(~0u, event.is_write()) & own);
    const uint32_t writes = __ballot_sync(~0u, event.adds_writes());
    const uint32_t lasts = __ballot_sync(~0u, event.last);
    // A group from before: up to its end, if that is here.
    const uint32_t above = lasts == 0 ? ~0u : lanes_below(__ffs(static_cast<int>(lasts)));
    const bool found = open && (writes & above) != 0;
    counts.groups += found ? 1 : 0;
    open = open && !found && lasts == 0;
    // Groups that start here.
    const uint32_t firsts = (lasts << 1 | (starts ? 1u : 0u)) & own;
    const uint32_t ends = lasts >> lane;
    const int32_t behind = ends == 0 ? 32 : lane + __ffs(static_cast<int>(ends));
    const bool first = (firsts >> lane & 1u) != 0;
    const bool written = (writes & lanes_below(behind) & ~lanes_below(lane)) != 0;
    counts.groups += __popc(__ballot_sync(~0u, first && written));
    open = open || __any_sync(~0u, first && !written && ends == 0);
    starts = (lasts >> 31) != 0;
  }
  return counts;
}

}  // namespace sdm
