#include <cmath>

#include "kernels/chunk/chunk_prepare/chunk_prepare.h"
#include "kernels/chunk/chunk_prepare/chunk_prepare_math.h"
#include "kernels/common/math/float_mode.h"

namespace sdm {
namespace {

struct Group {
  int32_t begin, end;  // positions
  int32_t slot;        // kNoSlot: one event that has none
  int32_t writes;      // how many of its events
  double total;        // the slot's log sum over the chunk
};

// The events from `begin` on that share its slot: their log sums.
Group sum_logs(const ChunkPrepare& chunk, int32_t begin) {
  const ChunkInputs& inputs = chunk.inputs();
  Group group{begin, begin, inputs.slot(begin), 0, 0.0};
  Entry before{-1, 0, false};
  for (bool last = false; !last; ++group.end) {
    const int32_t place = inputs.place(group.end);
    const Entry here = inputs.entry(place);
    const bool opens_run = here.token != before.token || here.is_read != before.is_read;
    if (opens_run && !here.is_read && group.slot != kNoSlot) {
      group.total += inputs.token_log(group.end, here, group.slot);
    }
    last = inputs.last(group.end, group.slot);
    const uint32_t word = ChunkPrepare::event_word(here, group.slot, group.end == begin, last);
    const bool paired = opens_run && group.writes > 0;
    chunk.store_event(group.end, place, {group.total, inputs.weight(here, group.slot), word},
                      paired);
    group.writes += here.is_read ? 0 : 1;
    before = here;
  }
  return group;
}

void store_records(const ChunkPrepare& chunk, const Group& group, const GroupCounts& before) {
  const int32_t reads = group.end - group.begin - group.writes;
  RecordRank write{before.writes, 0, group.writes};
  RecordRank read{group.begin - before.writes, 0, reads};
  SlotDecays decays{};
  if (group.writes > 0) decays.total = static_cast<float>(std::exp(group.total));
  for (int32_t position = group.begin; position < group.end; ++position) {
    const ChunkEvent event = chunk.event(position);
    const bool is_read = event_read(event.word);
    decays.begun = static_cast<float>(std::exp(event.log));
    if (!is_read) decays.rest = static_cast<float>(decay(group.total, event.log));
    RecordRank& rank = is_read ? read : write;
    chunk.store_record(event, chunk.inputs().place(position), group.slot, rank, decays);
    ++rank.sorted, ++rank.number;
  }
  chunk.count_blocks(before, group.writes, group.slot);
}

void prepare(const ChunkPrepare& chunk) {
  GroupCounts before{0, 0};
  for (int32_t position = 0; position < chunk.inputs().size();) {
    const Group group = sum_logs(chunk, position);
    if (chunk.has_records()) store_records(chunk, group, before);
    before.writes += group.writes;
    before.groups += group.slot != kNoSlot && group.writes > 0 ? 1 : 0;
    position = group.end;
  }
}

}  // namespace

void chunk_prepare_host(const ChunkPrepareParams& params) {
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int32_t n = 0; n < params.num_chunks; ++n) {
      const ChunkPrepare chunk(params, n);
      for (int32_t t = 0; t < params.chunk_size; ++t) chunk.beta_row(t);
      prepare(chunk);
    }
  }
}

}  // namespace sdm
