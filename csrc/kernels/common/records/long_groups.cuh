// Sums over long groups, those that go on far beyond the tile of their FIRST. A warp that follows
// such a group takes a load's latency for every two entries. Here a block's warps add it side by
// side, 32 columns each, one entry after the other as the contract wants, while the rows of the
// tiles' groups are on their way; the owner finds the sum in shared memory.
#pragma once
#include "kernels/common/records/group_walk.cuh"

namespace sdm {

// One column of a group's sum, from its FIRST at `first` to its LAST, whose decay comes with it.
// `column` is that of the chunk's first token.
__device__ __forceinline__ float2 add_group_column(const Record* records, int32_t first,
                                                   int32_t entries, const char* column,
                                                   uint32_t row_bytes) {
  constexpr int kAhead = 16;  // rows on their way
  const auto lane = static_cast<int32_t>(threadIdx.x % uint32_t{kLanes});
  float sum = 0.0f;
  for (;; first += kLanes) {
    const Record record = record_or_padding(records, first + lane, entries);
    const uint32_t lasts = __ballot_sync(kFullWarp, record_last(record.word));
    const int32_t count = lasts == 0 ? kLanes : __ffs(static_cast<int32_t>(lasts));
    const uint32_t offset = static_cast<uint32_t>(record_token(record.word)) * row_bytes;
#pragma unroll 1
    for (int32_t at = 0; at < count; at += kAhead) {
      float x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const uint32_t from = __shfl_sync(kFullWarp, offset, at + i);
        x[i] = ptx::load_now(reinterpret_cast<const float*>(column + from));
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float scale = __shfl_sync(kFullWarp, record.scale, at + i);
        if (at + i < count) sum = fused(scale, x[i], sum);
      }
    }
    if (lasts != 0) return make_float2(sum, __shfl_sync(kFullWarp, record.decay, count - 1));
  }
}

template <int kCols, int kWarps>
class LongGroups {
  static constexpr int kQuad = 128 / kLanes;  // warps that hold a slice, a column a lane

 public:
  __device__ __forceinline__ LongGroups(char* shared, const Team<kCols>& team,
                                        const WalkPlace& place)
      : all_(*reinterpret_cast<LongGroupMemory<kWarps>*>(shared)), team_(team), place_(place) {}

  __device__ __forceinline__ int32_t tail() const { return long_tail(place_.tile, slices() == 1); }

  // Says whether this warp's last group is long.
  __device__ __forceinline__ void post(const GroupHead* list, const TileGroups& tile) const {
    if (team_.lane == 0) {
      all_.first[place_.warp] = tile.is_long ? position_of(list[tile.count - 1], place_) : -1;
    }
  }
  // The block meets; then all know what all have posted.
  __device__ __forceinline__ void meet() const { __syncthreads(); }

  // A bit for every warp whose long group the block adds. The room runs out only where a
  // block has very many: then the owners of the last ones add alone.
  __device__ __forceinline__ uint32_t warps() const {
    const int32_t first = team_.lane < kWarps ? all_.first[team_.lane] : -1;
    uint32_t mask = __ballot_sync(kFullWarp, first >= 0);
    for (int32_t left = __popc(mask) - kLongGroupFloats / stride(); left > 0; --left) {
      mask &= ~(1u << (31 - __clz(static_cast<int32_t>(mask))));
    }
    return mask;
  }

  // Adds the long groups of `warps`: rows of hd floats, one a token of the chunk. The block meets
  // at the end.
  __device__ __forceinline__ void add(uint32_t warps, const Record* records, const float* rows,
                                      int32_t hd) const {
    constexpr int kQuads = kWarps / kQuad;
    const int32_t width = slice_width(hd), offset = place_.warp % kQuad * kLanes + team_.lane;
    const int32_t tasks = __popc(warps) * slices();
    for (int32_t task = place_.warp / kQuad; task < tasks; task += kQuads) {
      const int32_t group = slices() == 1 ? task : task / 2, part = slices() == 1 ? 0 : task % 2;
      uint32_t left = warps;
      for (int32_t i = 0; i < group; ++i) left &= left - 1;
      const int32_t first = all_.first[__ffs(static_cast<int32_t>(left)) - 1];
      const int32_t column = (place_.slice_group * slices() + part) * width + offset;
      const bool active = offset < width && column < hd;
      const float2 sum =
          add_group_column(records, first, place_.entries,
                           reinterpret_cast<const char*>(rows + (active ? column : 0)),
                           static_cast<uint32_t>(hd) * 4);
      all_.sums[task * 128 + offset] = active ? sum.x : 0.0f;
      if (part == 0 && offset == 0) all_.decays[group] = sum.y;
    }
    __syncthreads();
  }

  // This warp's sum, if it is among `warps`: this thread's columns and its LAST's decay.
  __device__ __forceinline__ bool read(uint32_t warps, float (&acc)[kCols], float& decay) const {
    if ((warps >> place_.warp & 1) == 0) return false;
    const int32_t group = __popc(warps & ((1u << place_.warp) - 1));
    const int32_t part = team_.two_groups ? 0 : team_.index;
    const float* from = all_.sums + group * stride() + part * 128 + team_.member * kCols;
    const auto raw = read_bits<kCols * sizeof(float)>(from);
#pragma unroll
    for (int c = 0; c < kCols; ++c) acc[c] = bits_to_float(raw.word[c]);
    decay = all_.decays[group];
    return true;
  }

 private:
  // Slices that a warp's rows are of, and the floats of their sums.
  __device__ __forceinline__ int32_t slices() const {
    return kCols == 4 || team_.two_groups ? 1 : 2;
  }
  __device__ __forceinline__ int32_t stride() const { return 128 * slices(); }

  LongGroupMemory<kWarps>& all_;
  const Team<kCols>& team_;
  const WalkPlace& place_;
};

// visit(entry) for the entries of a long group beyond its owner's tile, a thread of each team for
// every member'th of them; several are on their way at once.
template <int kCols, class Visit>
__device__ __forceinline__ void for_tail(const Record* records, const WalkPlace& place,
                                         int32_t member, const Visit& visit) {
  constexpr int kAhead = 4, kSize = Team<kCols>::kSize;
  for (int32_t at = place.end();; at += kAhead * kSize) {
    Record entry[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      entry[i] = record_or_padding(records, at + i * kSize + member, place.entries);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      // Teams see the same entries: the first set bit is a member of the first.
      const uint32_t lasts = __ballot_sync(kFullWarp, record_last(entry[i].word));
      if (lasts == 0 || member < __ffs(static_cast<int32_t>(lasts))) visit(entry[i]);
      if (lasts != 0) return;
    }
  }
}

}  // namespace sdm
