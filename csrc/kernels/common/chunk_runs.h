// Walks over a slot's sorted events by runs: the writes, or the reads, of one token. A run's events
// stand side by side and share one log sum, so that its partners see its weights' sum alone.
#pragma once
#include "kernels/common/chunk_events.h"

namespace sdm {

// Of two events side by side in one slot.
SDM_HD bool same_run(uint32_t a, uint32_t b) {
  return event_read(a) == event_read(b) && record_token(a) == record_token(b);
}

SDM_HD bool opens_run(const ChunkEvent* events, int32_t position) {
  const uint32_t word = events[position].word;
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

// visit(token, log, sum of weights) for every token's writes before `position` in its slot, nearest
// first, where `position` starts a run.
template <typename Visit>
SDM_HD void for_earlier_writes(const ChunkEvent* events, int32_t position, const Visit& visit) {
  int32_t token = -1;  // of the run that is being summed
  double log = 0.0, weight = 0.0;
  uint32_t word = events[position].word;
  for (int32_t i = position; !record_first(word);) {
    const ChunkEvent event = events[--i];
    word = event.word;
    if (event_read(word)) continue;
    if (record_token(word) != token) {
      if (token >= 0) visit(token, log, weight);
      token = record_token(word);
      log = event.log;
      weight = 0.0;
    }
    weight += event.weight;
  }
  if (token >= 0) visit(token, log, weight);
}

// visit(word, log, sum of weights) for every run behind that of `position` in its slot, in order.
template <typename Visit>
SDM_HD void for_later_runs(const ChunkEvent* events, int32_t position, const Visit& visit) {
  const uint32_t own = events[position].word;
  uint32_t run = own;  // a word of the run that is being summed; own: none is
  double log = 0.0, weight = 0.0;
  uint32_t word = own;
  for (int32_t i = position; !record_last(word);) {
    const ChunkEvent event = events[++i];
    word = event.word;
    if (same_run(word, own)) continue;
    if (!same_run(word, run)) {
      if (!same_run(run, own)) visit(run, log, weight);
      run = word;
      log = event.log;
      weight = 0.0;
    }
    weight += event.weight;
  }
  if (!same_run(run, own)) visit(run, log, weight);
}

}  // namespace sdm
