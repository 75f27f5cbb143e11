// A warp's part of a chunk: whole groups, as many as 32 positions hold at once. Log sums go from
// lane to lane in the order of the events, everything else is each lane's own.
#pragma once
#include "kernels/chunk/chunk_prepare/warp_groups.cuh"

namespace sdm {

class WarpPrepare {
 public:
  __device__ WarpPrepare(const ChunkPrepare& chunk, int32_t lane)
      : chunk_(chunk), inputs_(chunk.inputs()), lane_(lane) {}

  // The groups that start in `range`. `before`: what precedes its first position.
  __device__ void run(PositionRange range, GroupCounts before) const {
    if (range.begin >= range.end) return;
    bool starts = group_starts(inputs_, range.begin);
    for (int32_t at = range.begin; at < range.end;) {
      const LaneEvent event = lane_event(inputs_, at + lane_);
      const uint32_t lasts = __ballot_sync(~0u, event.last);
      const uint32_t firsts = (lasts << 1 | (starts ? 1u : 0u)) & lanes_below(range.end - at);
      int32_t taken = 32;  // positions that are done with
      if (firsts != 0) {
        const int32_t newest = top_lane(firsts);
        const uint32_t ends = lasts >> newest;
        taken = newest + __ffs(static_cast<int>(ends));
        if (ends == 0 && newest == 0) {
          at = long_group(at, before);
          starts = true;
          continue;
        }
        if (ends == 0) taken = newest;
      }
      const uint32_t writes = __ballot_sync(~0u, event.is_write()) & lanes_below(taken);
      if (firsts != 0) groups(event, {firsts, lasts, writes, taken}, before);
      before.writes += __popc(writes);
      at += taken;
      starts = firsts != 0 || (lasts >> 31) != 0;
    }
  }

 private:
  // Of 32 positions: where groups start and end, the writes (padding too), and how many positions
  // belong to whole groups, or to one that another warp has done.
  struct Window {
    uint32_t firsts, lasts, writes;
    int32_t taken;
  };

  // The lanes' part of a list of events in order: log sums from lane to lane. `joined`: the lanes
  // that go on from the lane before; `heads`: those that open a run.
  __device__ double sum_logs(const LaneEvent& event, uint32_t joined, uint32_t heads, bool run_ends,
                             double before) const {
    const bool adds = event.adds_writes() && (heads >> lane_ & 1u) != 0;
    double own = 0.0;
    if (adds) {
      own = run_ends ? 0.0 + inputs_.log_decay(event.entry)
                     : inputs_.token_log(event.position, event.entry, event.slot);
    }
    double log = adds ? before + own : before;
    for (uint32_t later = joined; later != 0; later &= later << 1) {
      const double previous = __shfl_up_sync(~0u, log, 1);
      if ((later >> lane_ & 1u) != 0) log = adds ? previous + own : previous;
    }
    return log;
  }

  __device__ void groups(const LaneEvent& event, const Window& window, GroupCounts& before) const {
    const uint32_t below = lanes_below(lane_);
    const bool active = lane_ < window.taken && (window.firsts & (below << 1 | 1u)) != 0;
    const int32_t first = active ? top_lane(window.firsts & (below << 1 | 1u)) : lane_;
    const int32_t last =
        active ? lane_ + __ffs(static_cast<int>(window.lasts >> lane_)) - 1 : lane_;
    const uint32_t group = lanes_below(last + 1) & ~lanes_below(first);

    // Log sums.
    const int32_t run_before = __shfl_up_sync(~0u, event.run(), 1);
    const bool opens_run = lane_ == first || run_before != event.run();
    const uint32_t heads = __ballot_sync(~0u, active && opens_run);
    const uint32_t joined = __ballot_sync(~0u, active && lane_ != first);
    const bool run_ends = lane_ == last || (heads >> (lane_ + 1) & 1u) != 0;
    const double log = sum_logs(event, joined, heads, run_ends, 0.0);
    const double total = __shfl_sync(~0u, log, last);

    // Counts.
    const uint32_t mine = event.entry.is_read ? ~window.writes & group : window.writes & group;
    const int32_t writes_before = before.writes + __popc(window.writes & below);
    const bool counted =
        active && lane_ == first && event.slot != kNoSlot && (window.writes & group) != 0;
    const uint32_t counts = __ballot_sync(~0u, counted);
    const GroupCounts precede{writes_before, before.groups + __popc(counts & below)};
    before.groups += __popc(counts);
    const float begun = static_cast<float>(::exp(log));
    const float whole = __shfl_sync(~0u, begun, last);  // the last one's log sum is the total
    if (!active) return;

    // Stores.
    const uint32_t word =
        ChunkPrepare::event_word(event.entry, event.slot, lane_ == first, lane_ == last);
    const ChunkEvent stored{log, inputs_.weight(event.entry, event.slot), word};
    const bool paired = opens_run && (window.writes & group & below) != 0;
    chunk_.store_event(event.position, event.place, stored, paired);
    if (!chunk_.has_records()) return;
    const RecordRank rank{event.entry.is_read ? event.position - writes_before : writes_before,
                          __popc(mine & below), __popc(mine)};
    const float rest = event.entry.is_read ? 0.0f : static_cast<float>(decay(total, log));
    chunk_.store_record(stored, event.place, event.slot, rank, {begun, rest, whole});
    if (lane_ == first) chunk_.count_blocks(precede, __popc(window.writes & group), event.slot);
  }

  // The group that starts at `begin` and is longer than a warp: its log sums first, then, with its
  // total and its counts, its records. Returns its end.
  __device__ int32_t long_group(int32_t begin, GroupCounts& before) const {
    const int32_t slot = inputs_.slot(begin);
    int32_t run = -1, writes = 0, end = begin;
    double log = 0.0;
    for (bool more = true; more;) {
      const LaneEvent event = lane_event(inputs_, end + lane_);
      const uint32_t members = __ballot_sync(~0u, event.inside && event.slot == slot);
      if (members == 0) break;
      const int32_t count = __popc(members);
      const uint32_t wrote = __ballot_sync(~0u, event.is_write()) & members;
      const int32_t run_before = __shfl_up_sync(~0u, event.run(), 1);
      const bool opens_run = (lane_ == 0 ? run : run_before) != event.run();
      const uint32_t heads = __ballot_sync(~0u, opens_run) & members;
      const bool run_ends = lane_ + 1 < count && (heads >> (lane_ + 1) & 1u) != 0;
      const double sum = sum_logs(event, members & ~1u, heads, run_ends, log);
      if (lane_ < count) {
        const int32_t wrote_before = writes + __popc(wrote & lanes_below(lane_));
        const uint32_t word =
            ChunkPrepare::event_word(event.entry, slot, event.position == begin, event.last);
        chunk_.store_event(event.position, event.place,
                           {sum, inputs_.weight(event.entry, slot), word},
                           opens_run && wrote_before > 0);
      }
      log = __shfl_sync(~0u, sum, count - 1);
      run = __shfl_sync(~0u, event.run(), count - 1);
      writes += __popc(wrote);
      end += count;
      more = count == 32;
    }
    if (chunk_.has_records()) long_records(begin, end, {slot, writes, log}, before);
    before.writes += writes;
    before.groups += writes > 0 ? 1 : 0;
    return end;
  }

  struct LongGroup {
    int32_t slot, writes;
    double total;
  };

  __device__ void long_records(int32_t begin, int32_t end, const LongGroup& group,
                               const GroupCounts& before) const {
    const float whole = static_cast<float>(::exp(group.total));
    const int32_t reads = end - begin - group.writes;
    int32_t writes_done = 0;
    for (int32_t at = begin; at < end; at += 32) {
      const int32_t position = at + lane_;
      const bool inside = position < end;
      ChunkEvent event{};
      if (inside) event = chunk_.event(position);  // as this lane stored it
      const bool is_read = event_read(event.word);
      const uint32_t wrote = __ballot_sync(~0u, inside && !is_read);
      const int32_t number = writes_done + __popc(wrote & lanes_below(lane_));
      writes_done += __popc(wrote);
      if (!inside) continue;
      const RecordRank rank =
          is_read ? RecordRank{position - before.writes - number, position - begin - number, reads}
                  : RecordRank{before.writes + number, number, group.writes};
      const SlotDecays decays{static_cast<float>(::exp(event.log)),
                              static_cast<float>(decay(group.total, event.log)), whole};
      chunk_.store_record(event, inputs_.place(position), group.slot, rank, decays);
    }
    if (lane_ == 0) chunk_.count_blocks(before, group.writes, group.slot);
  }

  const ChunkPrepare& chunk_;
  const ChunkInputs& inputs_;
  const int32_t lane_;
};

}  // namespace sdm
