// How a warp walks the groups of its tile of sorted records (step_chain.md, section 3). It owns the
// groups whose FIRST lies in the tile, up to 32 positions inside one aligned block of 32, and
// follows the last of them beyond the tile's end.
#pragma once
#include "kernels/common/group_list.h"
#include "kernels/common/records.h"
#include "kernels/common/team.cuh"

namespace sdm {

// A record through L1: every team of an SM that works on this chunk reads it.
__device__ __forceinline__ Record load_record(const Record* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return {v.x, static_cast<int32_t>(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}

// What a warp works on. The grid: x = slice groups, then tiles of a block's warps; y and z =
// streams, some of which may not exist. So one stream's rows and results are worked on together, a
// row's slices first.
struct WalkPlace {
  int32_t stream;  // of the streams in launch order
  int32_t slice_group;
  int32_t entries;  // of the chunk
  int32_t warp;     // of the block
  int32_t tile;     // positions
  int32_t first;    // the tile's first position; at or past `entries`: there is no tile

  __device__ __forceinline__ WalkPlace(int32_t chunk_entries, int32_t slice_groups,
                                       int32_t block_warps)
      : stream(static_cast<int32_t>(blockIdx.z * gridDim.y + blockIdx.y)), entries(chunk_entries) {
    const auto groups = static_cast<uint32_t>(slice_groups);
    slice_group = static_cast<int32_t>(blockIdx.x % groups);
    const auto block_tile = static_cast<int32_t>(blockIdx.x / groups);
    tile = tile_positions(entries, static_cast<int32_t>(gridDim.x / groups) * block_warps);
    warp = static_cast<int32_t>(threadIdx.x) / kLanes;
    first = (block_tile * block_warps + warp) * tile;
  }
  __device__ __forceinline__ int32_t block() const { return first / kLanes; }
  // The warp's own among the lists of a block.
  __device__ __forceinline__ GroupHead* list(char* lists) const {
    return reinterpret_cast<GroupHead*>(lists) + warp * tile;
  }
};

// Fills the warp's list with the groups it owns, in order, and returns how many there are.
// `snap_row(record, groups_before)` gives the snapshot row of a valid group from its first record
// and the number of valid groups before it in the block of 32.
template <class SnapRow>
__device__ __forceinline__ int32_t list_groups(GroupHead* list, const Record* records,
                                               const WalkPlace& place, int32_t lane,
                                               const SnapRow& snap_row) {
  const int32_t position = place.block() * kLanes + lane;
  const Record record = position < place.entries ? load_record(records + position) : Record{};
  const bool first = record_first(record.word);
  const bool valid = first && !record_invalid(record.word);
  const bool owned = first && position >= place.first && position < place.first + place.tile;
  const uint32_t owners = __ballot_sync(kFullWarp, owned);
  const uint32_t groups = __ballot_sync(kFullWarp, valid);
  const uint32_t before = (1u << lane) - 1;
  if (owned) {
    GroupHead& head = list[__popc(owners & before)];
    head.row = valid ? record.row : -1;
    head.snap_row = valid ? snap_row(record, __popc(groups & before)) : 0;
    head.word = record.word;
    head.position = position;
    head.scale = record.scale;
    head.decay = record.decay;
  }
  __syncwarp();
  return __popc(owners);
}

// A list entry as two 16-byte reads of shared memory.
__device__ __forceinline__ GroupHead read_head(const GroupHead* from) {
  const auto* words = reinterpret_cast<const uint4*>(from);
  const uint4 a = words[0], b = words[1];
  return {static_cast<int32_t>(a.x), static_cast<int32_t>(a.y), a.z, static_cast<int32_t>(a.w),
          __uint_as_float(b.x),      __uint_as_float(b.y),      {}};
}

// The first entry of a pair becomes the second.
__device__ __forceinline__ void choose(bool second, Record& a, const Record& b, bool& on_a,
                                       bool on_b) {
  a.word = second ? b.word : a.word;
  a.decay = second ? b.decay : a.decay;
  on_a = second ? on_b : on_a;
}

// The entries after a group's FIRST, for one team (or both teams of a warp: one whose group is
// finished, more = false, only takes part in the shuffles). Entries are taken kAhead at a time, so
// that their loads and trees overlap; the chain over entries stays in order.
template <int kCols>
struct GroupRest {
  static constexpr int kAhead = kCols == 8 ? 2 : 4;
  const Record* records;  // the chunk's
  int32_t entries;
  int32_t position;  // of the next entry
  bool more;

  // acc += scale * x in order, write(record, <x, m>) once per entry, decay = the last entry's.
  template <class Rows, class Write>
  __device__ __forceinline__ void follow(const Team<kCols>& team, const Rows& token_rows,
                                         const float (&m)[kCols], float (&acc)[kCols], float& decay,
                                         const Write& write) {
    while (__any_sync(kFullWarp, more)) {
      Record entry[kAhead];
      bool on[kAhead];
      float x[kAhead][kCols], dots[kAhead];
      take(token_rows, entry, on, x);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        dots[i] = partial_dot<kCols>(x[i], m);
        link(entry[i], on[i], x[i], acc, decay);
      }
      const float dot = team_sums<kCols, kAhead>(dots, team.member);
      // Member b's sum is the entry number b with its bits reversed.
      if constexpr (kAhead == 4) {
        const bool odd = (team.member & 2) != 0;
        choose(odd, entry[0], entry[1], on[0], on[1]);
        choose(odd, entry[2], entry[3], on[2], on[3]);
      }
      choose((team.member & 1) != 0, entry[0], entry[kAhead / 2], on[0], on[kAhead / 2]);
      if (on[0] && team.member < kAhead) write(entry[0], dot);
    }
  }

  // The same without dots.
  template <class Rows>
  __device__ __forceinline__ void add(const Rows& token_rows, float (&acc)[kCols], float& decay) {
    while (more) {
      Record entry[kAhead];
      bool on[kAhead];
      float x[kAhead][kCols];
      take(token_rows, entry, on, x);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) link(entry[i], on[i], x[i], acc, decay);
    }
  }

 private:
  // The next entries, which of them belong to the group, and their token rows.
  template <class Rows>
  __device__ __forceinline__ void take(const Rows& token_rows, Record (&entry)[kAhead],
                                       bool (&on)[kAhead], float (&x)[kAhead][kCols]) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const bool readable = more && position + i < entries;
      entry[i] = readable ? load_record(records + position + i) : Record{kRecordLast, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      on[i] = more;
      more = more && !record_last(entry[i].word);
      const auto raw = token_rows.load_cached(record_token(entry[i].word));
      decode<Rows::kType, kCols>(raw, 1.0f, x[i]);
    }
    position += kAhead;
  }

  // One entry's link of the chain.
  static __device__ __forceinline__ void link(const Record& entry, bool on, const float (&x)[kCols],
                                              float (&acc)[kCols], float& decay) {
    if (!on) return;
#pragma unroll
    for (int c = 0; c < kCols; ++c) acc[c] = fused(entry.scale, x[c], acc[c]);
    decay = entry.decay;
  }
};

}  // namespace sdm
