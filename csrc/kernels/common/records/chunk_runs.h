// Walks over a slot's sorted events by runs: the writes, or the reads, of one token. A run's events
// stand side by side and share one log sum, so that its partners see its weights' sum alone.
#pragma once
#include "kernels/common/records/chunk_events.h"

namespace sdm {

// Of two events side by side in one slot: the same token and the same kind.
SDM_HD bool same_run(uint32_t a, uint32_t b) {
  return ((a ^ b) & (kEventRead | kRecordTokenBits)) == 0;
}

// An event that has its slot to itself: a run and a group of its own, as each without a slot is.
SDM_HD bool event_alone(uint32_t word) { return record_first(word) && record_last(word); }

// `word` is that of the event at `position`.
SDM_HD bool opens_run(const ChunkEvent* events, int32_t position, uint32_t word) {
  return record_first(word) || !same_run(events[position - 1].word, word);
}

// visit(position, event) for each event of the run that starts at `position`.
template <typename Visit>
SDM_HD void for_run(const ChunkEvent* events, int32_t position, const Visit& visit) {
  const uint32_t run = events[position].word;
  for (int32_t i = position;; ++i) {
    const ChunkEvent event = events[i];
    if (!same_run(event.word, run)) return;
    visit(i, event);
    if (record_last(event.word)) return;
  }
}

// visit(token, log, sum of weights) for every token's writes from `position` back to its slot's
// start, nearest first. `event` is that at `position`, a run's last; those ahead are each asked for
// before what is behind them is done.
template <typename Visit>
SDM_HD void for_writes_back(const ChunkEvent* events, int32_t position, ChunkEvent event,
                            const Visit& visit) {
  for (bool more = true; more;) {
    const ChunkEvent last = event;
    double weight = 0.0;
    do {
      weight += event.weight;
      more = !record_first(event.word);
      if (more) event = events[--position];
    } while (more && same_run(event.word, last.word));
    if (!event_read(last.word)) visit(record_token(last.word), last.log, weight);
  }
}

// for_writes_back from the event ahead of `position`, which starts a run; none if it is the slot's
// first.
template <typename Visit>
SDM_HD void for_earlier_writes(const ChunkEvent* events, int32_t position, const Visit& visit) {
  if (record_first(events[position].word)) return;
  for_writes_back(events, position - 1, events[position - 1], visit);
}

// visit(word, log, sum of weights) for every run behind that of `position` in its slot, in order.
template <typename Visit>
SDM_HD void for_later_runs(const ChunkEvent* events, int32_t position, const Visit& visit) {
  int32_t i = position;
  ChunkEvent event = events[i];
  bool own = true;
  for (bool more = true; more; own = false) {
    const ChunkEvent first = event;
    double weight = 0.0;
    do {
      weight += event.weight;
      more = !record_last(event.word);
      if (more) event = events[++i];
    } while (more && same_run(event.word, first.word));
    if (!own) visit(first.word, first.log, weight);
  }
}

}  // namespace sdm
