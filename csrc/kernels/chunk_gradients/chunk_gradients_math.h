// A chunk's gradients, for the host twin and the device kernels, in three passes: every event's own
// terms, then every write's gate, then (with one gate a token) every token's sum. A pair's log sums
// enter as exp(log of the later one - log of the earlier one): what one gains the other loses, so
// all of it is float64 until the end.
//
// What a token writes to one slot (or reads from it) is a run: events side by side that share their
// log sum and so all their pairs. A run is one thread's, and partners act by their run's weight:
// the cost of a slot is its pairs of tokens, however often a token names it.
#pragma once
#include "kernels/chunk_gradients/chunk_gradients_params.h"
#include "kernels/common/chunk_runs.h"
#include "kernels/common/chunk_shape.h"
#include "kernels/common/typed_values.h"

namespace sdm {

class ChunkGradients {
 public:
  SDM_HD ChunkGradients(const ChunkGradientsParams& params, int64_t chunk)
      : params_(params),
        shape_(shape_of(params)),
        tokens_(chunk_tokens(shape_, chunk)),
        first_row_(chunk * params.chunk_size),
        events_(params.events + chunk * shape_.events()),
        terms_(params.terms + chunk * shape_.events()) {}

  SDM_HD int32_t size() const { return shape_.events(); }
  SDM_HD int32_t valid_tokens() const { return tokens_.valid; }

  // Pass 1, for every position; what starts a run does it. The gradients of its weights, and what
  // the gates take from them.
  SDM_HD void run(int32_t position) const {
    const ChunkEvent here = events_[position];
    if (record_invalid(here.word) || !opens_run(events_, position)) return;
    if (event_read(here.word)) {
      reads(position, here);
    } else {
      writes(position, here);
    }
  }

  // Pass 2, for every position; what starts a run of writes does it. A gate enters every later log
  // sum of its slot, and the slot's total. A token's gates on one slot act together: from its run
  // on.
  SDM_HD void gates(int32_t position) const {
    uint32_t word = events_[position].word;
    if (record_invalid(word) || event_read(word) || !opens_run(events_, position)) return;
    double sum = 0.0;
    for (int32_t i = position;; ++i) {
      sum += terms_[i].log;
      if (record_last(events_[i].word)) break;
    }
    // The total takes every write's kept part, the log sums from the run on give theirs back.
    for (int32_t i = position; !record_first(word); word = events_[i].word) sum += terms_[--i].kept;
    for_run(events_, position,
            [&](int32_t, const ChunkEvent& write) { store_gate(write.word, sum); });
  }

  // Pass 3, for a token that is no padding, where it has one gate for all its writes.
  SDM_HD void token_gate(int32_t token) const {
    const double* gates = params_.gates + (first_row_ + token) * params_.num_writes;
    double sum = 0.0;
    for (int32_t w = 0; w < params_.num_writes; ++w) sum += gates[w];
    store_value(params_.dg, params_.dg_type, tokens_.first_row + token, static_cast<float>(sum));
  }

 private:
  SDM_HD int64_t staged_write(uint32_t word) const {
    return (first_row_ + record_token(word)) * params_.num_writes + record_index(word);
  }

  SDM_HD double d_a(int32_t later, int32_t earlier) const {
    return -static_cast<double>(params_.beta_rows[first_row_ + later]) *
           params_.d_m[(first_row_ + later) * params_.chunk_size + earlier];
  }

  SDM_HD double d_qk(int32_t later, int32_t earlier) const {
    return params_.d_qk[(first_row_ + later) * params_.chunk_size + earlier];
  }

  SDM_HD void store_gate(uint32_t word, double shared) const {
    const int64_t staged = staged_write(word);
    const double sum = shared + params_.d_total[staged];
    if (params_.gates != nullptr) {
      params_.gates[staged] = sum;
      return;
    }
    const int64_t row = tokens_.first_row + record_token(word);
    store_value(params_.dg, params_.dg_type, row * params_.num_writes + record_index(word),
                static_cast<float>(sum));
  }

  // The reads of one token, from `position` on: their pairs, then each one's own part.
  SDM_HD void reads(int32_t position, const ChunkEvent& here) const {
    const int32_t token = record_token(here.word);
    double pairs = 0.0;
    for_earlier_writes(events_, position, [&](int32_t other, double log, double weight) {
      pairs += d_qk(token, other) * weight * decay(here.log, log);
    });
    const double own_decay = ::exp(here.log);
    for_run(events_, position, [&](int32_t i, const ChunkEvent& read) {
      const int32_t index = record_index(read.word);
      const int64_t staged = (first_row_ + token) * params_.num_reads + index;
      const double sum = pairs + params_.dqeff[staged] * own_decay;
      terms_[i] = {read.weight * sum, 0.0};
      const int64_t at = (tokens_.first_row + token) * params_.num_reads + index;
      store_value(params_.dq, params_.dq_type, at, static_cast<float>(sum));
    });
  }

  // The same for the writes of one token: pairs with earlier and with later events.
  SDM_HD void writes(int32_t position, const ChunkEvent& here) const {
    const int32_t token = record_token(here.word);
    double later = 0.0, earlier = 0.0, total = here.log;
    for_earlier_writes(events_, position, [&](int32_t other, double log, double weight) {
      later += d_a(token, other) * weight * decay(here.log, log);
    });
    for_later_runs(events_, position, [&](uint32_t word, double log, double weight) {
      const int32_t other = record_token(word);
      if (!event_read(word)) total = log;
      const double cell = event_read(word) ? d_qk(other, token) : d_a(other, token);
      earlier += cell * weight * decay(log, here.log);
    });
    const double own_decay = ::exp(here.log), rest_decay = decay(total, here.log);
    for_run(events_, position, [&](int32_t i, const ChunkEvent& write) {
      const int64_t staged = staged_write(write.word);
      const double start = params_.dkeff[staged] * own_decay;
      const double stop = params_.dpd[staged] * rest_decay;
      terms_[i] = {write.weight * (later - earlier + start), write.weight * stop};
      const int64_t row = tokens_.first_row + token;
      store_value(params_.dk, params_.dk_type, row * params_.num_writes + record_index(write.word),
                  static_cast<float>(later + earlier + start + stop));
    });
  }

  const ChunkGradientsParams& params_;
  const ChunkShape shape_;
  const ChunkTokens tokens_;
  const int64_t first_row_;  // of the chunk among the staged tokens
  const ChunkEvent* events_;
  EventTerms* terms_;
};

}  // namespace sdm
