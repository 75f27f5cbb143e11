// A chunk's gradients, for the host twin and the device kernels, in three passes: every event's own
// terms, then every write's gate, then (with one gate a token) every token's sum. A pair's log sums
// enter as exp(log of the later one - log of the earlier one): what one gains the other loses, so
// all of it is float64 until the end.
//
// What a token writes to one slot (or reads from it) is a run: events side by side that share their
// log sum and so all their pairs. A run is one thread's, and partners act by their run's weight:
// the cost of a slot is its pairs of tokens, however often a token names it. An event that has its
// slot to itself has no pairs, and its gate needs no other's terms: the first pass does all of it.
#pragma once
#include "kernels/chunk/chunk_gradients/chunk_gradients_params.h"
#include "kernels/common/records/chunk_runs.h"
#include "kernels/common/records/chunk_shape.h"

namespace sdm {

// Pass 3: a token's gates, in the order of its writes.
SDM_HD float sum_gates(const double* gates, int32_t num_writes) {
  double sum = 0.0;
  for (int32_t w = 0; w < num_writes; ++w) sum += gates[w];
  return static_cast<float>(sum);
}

// Entries: TensorEntries or what stands in for it.
template <typename Entries>
class ChunkGradients {
 public:
  SDM_HD ChunkGradients(const ChunkGradientsParams& params, int32_t chunk, const Entries& entries)
      : params_(params),
        entries_(entries),
        first_row_(int64_t{chunk} * params.chunk_size),
        events_(params.events + chunk * int64_t{shape_of(params).events()}),
        terms_(params.terms + chunk * int64_t{shape_of(params).events()}) {}

  SDM_HD const ChunkEvent* events() const { return events_; }

  // Pass 1, for every event without a slot: a real token's takes part in nothing, padding has no
  // gradients. They stand behind all others. False if the event at `position` has a slot.
  SDM_HD bool none(int32_t position) const {
    const uint32_t word = events_[position].word;
    if (!record_invalid(word)) return false;
    if (!entries_.holds(record_token(word))) return true;
    if (event_read(word)) {
      entries_.put_dq(word, 0.0f);
    } else {
      entries_.put_dk(word, 0.0f);
      entries_.put_gate(word, 0.0);
    }
    return true;
  }

  // Pass 1, for every event that has a slot to itself.
  SDM_HD void alone(const ChunkEvent& here) const {
    const double own_decay = ::exp(here.log);
    if (event_read(here.word)) {
      read(here, 0.0, own_decay);
    } else {
      const EventTerms terms = write(here, {0.0, 0.0}, own_decay, decay(here.log, here.log));
      entries_.put_gate(here.word, 0.0 + terms.log + entries_.d_total(here.word));
    }
  }

  // Pass 1, for every other run of reads, by its first position: the gradients of its weights, and
  // what the gates take from them.
  SDM_HD void reads(int32_t position) const {
    const ChunkEvent here = events_[position];
    const int32_t token = record_token(here.word);
    double pairs = 0.0;
    for_earlier_writes(events_, position, [&](int32_t other, double log, double weight) {
      pairs += d_qk(token, other) * weight * decay(here.log, log);
    });
    const double own_decay = ::exp(here.log);
    for_run(events_, position,
            [&](int32_t i, const ChunkEvent& event) { terms_[i] = read(event, pairs, own_decay); });
  }

  // Pass 1, for every other run of writes: pairs with earlier and with later events.
  SDM_HD void writes(int32_t position) const {
    const ChunkEvent here = events_[position];
    const int32_t token = record_token(here.word);
    Pairs pairs{0.0, 0.0};
    for_earlier_writes(events_, position, [&](int32_t other, double log, double weight) {
      pairs.as_later += d_a(token, other) * weight * decay(here.log, log);
    });
    double total = here.log;
    for_later_runs(events_, position, [&](uint32_t word, double log, double weight) {
      const int32_t other = record_token(word);
      if (!event_read(word)) total = log;
      const double cell = event_read(word) ? d_qk(other, token) : d_a(other, token);
      pairs.as_earlier += cell * weight * decay(log, here.log);
    });
    const double own_decay = ::exp(here.log), rest_decay = decay(total, here.log);
    for_run(events_, position, [&](int32_t i, const ChunkEvent& event) {
      terms_[i] = write(event, pairs, own_decay, rest_decay);
    });
  }

  // Pass 2, for every run of writes that is not alone. A gate enters every later log sum of its
  // slot, and the slot's total. A token's gates on one slot act together: from its run on.
  SDM_HD void gates(int32_t position) const {
    uint32_t word = events_[position].word;
    double sum = 0.0;
    for (int32_t i = position;; ++i) {
      sum += terms_[i].log;
      if (record_last(events_[i].word)) break;
    }
    // The total takes every write's kept part, the log sums from the run on give theirs back.
    for (int32_t i = position; !record_first(word); word = events_[i].word) sum += terms_[--i].kept;
    for_run(events_, position, [&](int32_t, const ChunkEvent& event) {
      entries_.put_gate(event.word, sum + entries_.d_total(event.word));
    });
  }

 private:
  // A write's sums over its pairs, by its part in them.
  struct Pairs {
    double as_later, as_earlier;
  };

  // One entry's gradient; returns its terms.
  SDM_HD EventTerms read(const ChunkEvent& event, double pairs, double own_decay) const {
    const double sum = pairs + entries_.dqeff(event.word) * own_decay;
    entries_.put_dq(event.word, static_cast<float>(sum));
    return {event.weight * sum, 0.0};
  }

  SDM_HD EventTerms write(const ChunkEvent& event, const Pairs& pairs, double own_decay,
                          double rest_decay) const {
    const double start = entries_.dkeff(event.word) * own_decay;
    const double stop = entries_.dpd(event.word) * rest_decay;
    entries_.put_dk(event.word,
                    static_cast<float>(pairs.as_later + pairs.as_earlier + start + stop));
    return {event.weight * (pairs.as_later - pairs.as_earlier + start), event.weight * stop};
  }

  SDM_HD double d_a(int32_t later, int32_t earlier) const {
    return -static_cast<double>(params_.beta_rows[first_row_ + later]) *
           params_.d_m[(first_row_ + later) * params_.chunk_size + earlier];
  }

  SDM_HD double d_qk(int32_t later, int32_t earlier) const {
    return params_.d_qk[(first_row_ + later) * params_.chunk_size + earlier];
  }

  const ChunkGradientsParams& params_;
  const Entries& entries_;
  const int64_t first_row_;  // of the chunk among the staged tokens
  const ChunkEvent* events_;
  EventTerms* terms_;
};

}  // namespace sdm
