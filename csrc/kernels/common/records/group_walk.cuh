// How a warp walks the groups of its tile of sorted entries (docs/step_chain.md, section 3). It
// owns the groups whose FIRST lies in the tile, up to 32 positions inside one aligned block of 32,
// and follows the last of them beyond the tile's end. If that goes on far, the group is long: its
// owner leaves the dots of what is beyond the tile to the warps in whose tiles it lies (their
// lead), and the sum to its block (long_groups.cuh).
#pragma once
#include "kernels/common/records/group_list.h"
#include "kernels/common/records/long_group_shape.h"
#include "kernels/common/rows/team.cuh"

namespace sdm {

// An entry through L1: every team of an SM that works on this chunk reads it.
__device__ __forceinline__ Record load_record(const Record* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return {v.x, static_cast<int32_t>(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}

// The entry at `position`; past the chunk's last one of padding.
__device__ __forceinline__ Record record_or_padding(const Record* records, int32_t position,
                                                    int32_t entries) {
  constexpr Record kPadding{kRecordFirst | kRecordLast | kRecordInvalid, 0, 0.0f, 0.0f};
  return position < entries ? load_record(records + position) : kPadding;
}

// What a warp works on. The grid: x = slice groups, then tiles of a block's warps; y and z =
// sequences, some of which may not exist. So one sequence's rows and results are worked on
// together, a row's slices first.
struct WalkPlace {
  int32_t sequence;  // of the sequences in launch order
  int32_t slice_group;
  int32_t entries;  // of the chunk
  int32_t warp;     // of the block
  int32_t tile;     // positions
  int32_t first;    // the tile's first position; at or past `entries`: there is no tile

  __device__ __forceinline__ WalkPlace(int32_t chunk_entries, int32_t slice_groups,
                                       int32_t block_warps)
      : sequence(static_cast<int32_t>(blockIdx.z * gridDim.y + blockIdx.y)),
        entries(chunk_entries) {
    uint32_t group = 0, block_tile = blockIdx.x, tiles = gridDim.x;
    if (slice_groups != 1) {  // divisions take long, and everything waits for them
      const auto groups = static_cast<uint32_t>(slice_groups);
      group = blockIdx.x % groups, block_tile = blockIdx.x / groups, tiles = gridDim.x / groups;
    }
    slice_group = static_cast<int32_t>(group);
    tile = tile_positions(entries, static_cast<int32_t>(tiles) * block_warps);
    warp = static_cast<int32_t>(threadIdx.x / uint32_t{kLanes});
    first = (static_cast<int32_t>(block_tile) * block_warps + warp) * tile;
  }
  __device__ __forceinline__ int32_t block() const { return first / kLanes; }
  // One past the tile's last position.
  __device__ __forceinline__ int32_t end() const { return min(first + tile, entries); }
  // The warp's own among the lists of a block.
  __device__ __forceinline__ GroupHead* list(char* lists) const {
    return reinterpret_cast<GroupHead*>(lists) + warp * tile;
  }
};

// Entries beyond the owner's tile from which on a group is long. A warp sees 32 entries from its
// tile's start, so that owner and lead judge alike.
__device__ __forceinline__ int32_t long_tail(int32_t tile, bool short_rounds) {
  return max(1, min(short_rounds ? kShortTail : kPairTail, kLanes - tile));
}

// What a tile holds, the same in every lane.
struct TileGroups {
  int32_t count;          // of groups that the warp owns
  int32_t groups_before;  // valid groups of the block of 32 before them
  int32_t lead;           // positions before the first of them, if they are of a long group
  bool is_long;           // the last of them is long
};

// Fills the warp's list with the groups it owns, in order. `tail`: long_tail(). A lane has the
// entry at the position that is `lane` modulo 32, from the tile's start on; kCount: groups_before
// is wanted, which takes a look at the entries before it.
template <bool kCount>
__device__ __forceinline__ TileGroups list_groups(GroupHead* list, const Record* records,
                                                  const WalkPlace& place, int32_t lane,
                                                  int32_t tail) {
  const int32_t begin = place.first % kLanes, in_block = place.block() * kLanes + lane;
  const Record record =
      record_or_padding(records, in_block + (lane < begin ? kLanes : 0), place.entries);
  uint32_t word_before = 0;
  if (kCount && lane < begin && in_block < place.entries) word_before = records[in_block].word;

  // Bit i: of the entry at place.first + i.
  const auto in_order = [&](bool vote) {
    const uint32_t bits = __ballot_sync(kFullWarp, vote);
    return __funnelshift_r(bits, bits, static_cast<uint32_t>(begin));
  };
  const uint32_t firsts = in_order(record_first(record.word));
  const uint32_t lasts = in_order(record_last(record.word));
  const int32_t count = max(0, place.end() - place.first);
  const uint32_t inside = count < kLanes ? (1u << count) - 1 : kFullWarp;
  const uint32_t owners = firsts & inside;
  const int32_t index = (lane - begin) & (kLanes - 1);
  if ((owners >> index & 1) != 0) {
    list[__popc(owners & ((1u << index) - 1))] = {record.row, word_with_lane(record.word, lane),
                                                  record.scale, record.decay};
  }
  __syncwarp();

  TileGroups tile{__popc(owners), 0, 0, false};
  if constexpr (kCount) {
    const bool valid = record_first(word_before) && !record_invalid(word_before);
    tile.groups_before = __popc(__ballot_sync(kFullWarp, valid));
  }
  // Bit i: the LASTs after the tile; none: the group ends beyond what is seen.
  const uint32_t beyond = count < kLanes ? lasts >> count : 0;
  const bool open = owners != 0 && (lasts >> (count - 1) & 1) == 0;
  tile.is_long = open && (beyond & ((1u << (tail - 1)) - 1)) == 0;
  if ((inside & ~firsts & 1) != 0 && place.first > 0) {
    const int32_t distance = record_distance(__shfl_sync(kFullWarp, record.word, begin));
    const int32_t end = (place.first - distance) / place.tile * place.tile + place.tile;
    const int32_t known = lasts == 0 ? kLanes : __ffs(static_cast<int32_t>(lasts));
    if (place.first + known - end >= tail) {
      tile.lead = owners != 0 ? __ffs(static_cast<int32_t>(owners)) - 1 : min(count, known);
    }
  }
  return tile;
}

// A list entry as one 16-byte read of shared memory.
__device__ __forceinline__ GroupHead read_head(const GroupHead* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return {static_cast<int32_t>(v.x), v.y, __uint_as_float(v.z), __uint_as_float(v.w)};
}

__device__ __forceinline__ int32_t position_of(const GroupHead& head, const WalkPlace& place) {
  return place.block() * kLanes + record_distance(head.word);
}

// The first entry of a pair becomes the second.
__device__ __forceinline__ void choose(bool second, Record& a, const Record& b, bool& on_a,
                                       bool on_b) {
  a.word = second ? b.word : a.word;
  a.decay = second ? b.decay : a.decay;
  on_a = second ? on_b : on_a;
}

// A group's entries after its FIRST, up to a position, for one team (or both teams of a warp: one
// that has none left only takes part in the shuffles). Entries are taken kAhead at a time, so that
// their loads and trees overlap; the chain over entries stays in order.
template <int kCols>
struct GroupRest {
  static constexpr int kAhead = kCols == 8 ? 2 : 4;
  const Record* records;  // the chunk's
  int32_t end;            // no entry from here on is looked at
  int32_t position;       // of the next entry
  bool more;              // the group goes on there

  // acc += scale * x in order, write(entry, <x, m>) once per entry, decay = the last entry's.
  // row(m) gives the group's row.
  template <class Rows, class Row, class Write>
  __device__ __forceinline__ void follow(const Team<kCols>& team, const Rows& token_rows,
                                         const Row& row, float (&acc)[kCols], float& decay,
                                         const Write& write) {
    while (__any_sync(kFullWarp, more && position < end)) {
      Record entry[kAhead];
      bool on[kAhead];
      float x[kAhead][kCols], dots[kAhead];
      take(token_rows, entry, on, x);
      float m[kCols];
      row(m);
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

  template <class Rows>
  __device__ __forceinline__ void add_from_zero(const Rows& token_rows, float (&acc)[kCols],
                                                float& decay) {
#pragma unroll
    for (int c = 0; c < kCols; ++c) acc[c] = 0.0f;
    add(token_rows, acc, decay);
  }
  // The same without dots.
  template <class Rows>
  __device__ __forceinline__ void add(const Rows& token_rows, float (&acc)[kCols], float& decay) {
    while (more && position < end) {
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
      const bool readable = more && position + i < end;
      entry[i] = readable ? load_record(records + position + i) : Record{};
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      on[i] = more && position + i < end;
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

// The entries of the list's group number `group` after its FIRST `head`: up to its LAST, but for a
// long one up to the tile's end.
template <int kCols>
__device__ __forceinline__ GroupRest<kCols> rest_of(int32_t group, const GroupHead& head,
                                                    const TileGroups& tile, const Record* records,
                                                    const WalkPlace& place) {
  const bool is_long = tile.is_long && group == tile.count - 1;
  return {records, is_long ? place.end() : place.entries, position_of(head, place) + 1,
          group < tile.count && !record_last(head.word)};
}

// Whether the warp's last group is this team's.
template <int kCols>
__device__ __forceinline__ bool owns_last(const Team<kCols>& team, int32_t groups) {
  return !team.two_groups || (groups - 1) % 2 == team.group_in_round;
}

// All entries of a group.
template <int kCols>
__device__ __forceinline__ GroupRest<kCols> whole_group(const GroupHead& head,
                                                        const Record* records,
                                                        const WalkPlace& place) {
  return {records, place.entries, position_of(head, place), true};
}

// Which stage of a ring a warp's last round has.
__device__ __forceinline__ int32_t last_stage(int32_t groups, int32_t per_round, int32_t depth) {
  return (groups - 1) / per_round % depth;
}

// A lead's entries as one team takes them: all of them, or its half where a warp's two teams work
// alone.
template <int kCols>
__device__ __forceinline__ GroupRest<kCols> lead_entries(const Team<kCols>& team,
                                                         const Record* records,
                                                         const WalkPlace& place, int32_t lead) {
  const int32_t share = team.two_groups ? (lead + 1) / 2 : lead;
  const int32_t begin = place.first + team.group_in_round * share;
  const int32_t end = min(begin + share, place.first + lead);
  return {records, end, begin, true};
}

}  // namespace sdm
