// A chunk's gradients, for the host twin and the device kernel: every event's own terms, then every
// write's gate, then (with one gate a token) every token's sum. A pair's log sums enter as
// exp(log of the later one - log of the earlier one): what one gains the other loses, so all of it
// is float64 until the end.
#pragma once
#include "kernels/chunk_gradients/chunk_gradients_params.h"
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

  // The gradient of the event's weight; what the gates take from it.
  SDM_HD void event(int32_t position) const {
    const ChunkEvent here = events_[position];
    if (record_invalid(here.word)) return;
    if (event_read(here.word)) {
      read(position, here);
    } else {
      write(position, here);
    }
  }

  // Its gate enters every later log sum of the slot, and the slot's total. A token's gates on one
  // slot act together: from the first of them on.
  SDM_HD void gate(int32_t position) const {
    const ChunkEvent here = events_[position];
    if (record_invalid(here.word) || event_read(here.word)) return;
    const int32_t token = record_token(here.word);
    int32_t run = position;
    while (!record_first(events_[run].word) && same_token_write(events_[run - 1].word, token))
      --run;
    double sum = 0.0;
    for (int32_t i = run;; ++i) {
      sum += terms_[i].log;
      if (record_last(events_[i].word)) break;
    }
    // The total takes every write's kept part, the log sums from `run` on give theirs back.
    for (int32_t i = run; !record_first(events_[i].word);) sum += terms_[--i].kept;
    const int64_t staged = staged_write(here.word);
    sum += params_.d_total[staged];
    if (params_.gates != nullptr) {
      params_.gates[staged] = sum;
    } else {
      const int64_t at = (tokens_.first_row + token) * params_.num_writes + record_index(here.word);
      store_value(params_.dg, params_.dg_type, at, static_cast<float>(sum));
    }
  }

  // For a token that is no padding, where it has one gate for all its writes.
  SDM_HD void token_gate(int32_t token) const {
    const double* gates = params_.gates + (first_row_ + token) * params_.num_writes;
    double sum = 0.0;
    for (int32_t w = 0; w < params_.num_writes; ++w) sum += gates[w];
    store_value(params_.dg, params_.dg_type, tokens_.first_row + token, static_cast<float>(sum));
  }

 private:
  SDM_HD static bool same_token_write(uint32_t word, int32_t token) {
    return !event_read(word) && record_token(word) == token;
  }

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

  SDM_HD void read(int32_t position, const ChunkEvent& here) const {
    const int32_t token = record_token(here.word);
    double sum = 0.0;
    uint32_t word = here.word;
    for (int32_t i = position; !record_first(word);) {
      const ChunkEvent other = events_[--i];
      word = other.word;
      if (event_read(word)) continue;
      sum += d_qk(token, record_token(word)) * other.weight * decay(here.log, other.log);
    }
    const int32_t index = record_index(here.word);
    sum += params_.dqeff[(first_row_ + token) * params_.num_reads + index] * ::exp(here.log);
    terms_[position] = {here.weight * sum, 0.0};
    const int64_t at = (tokens_.first_row + token) * params_.num_reads + index;
    store_value(params_.dq, params_.dq_type, at, static_cast<float>(sum));
  }

  SDM_HD void write(int32_t position, const ChunkEvent& here) const {
    const int32_t token = record_token(here.word);
    const double later = as_later_write(position, here, token);
    double earlier = 0.0, total = here.log;
    uint32_t word = here.word;
    for (int32_t i = position; !record_last(word);) {
      const ChunkEvent other = events_[++i];
      word = other.word;
      const int32_t other_token = record_token(word);
      if (!event_read(word)) total = other.log;
      if (other_token == token && !event_read(word)) continue;
      const double cell = event_read(word) ? d_qk(other_token, token) : d_a(other_token, token);
      earlier += cell * other.weight * decay(other.log, here.log);
    }
    const int64_t staged = staged_write(here.word);
    const double start = params_.dkeff[staged] * ::exp(here.log);
    const double stop = params_.dpd[staged] * decay(total, here.log);
    terms_[position] = {here.weight * (later - earlier + start), here.weight * stop};
    const int64_t at = (tokens_.first_row + token) * params_.num_writes + record_index(here.word);
    store_value(params_.dk, params_.dk_type, at,
                static_cast<float>(later + earlier + start + stop));
  }

  // Pairs with the writes of earlier tokens.
  SDM_HD double as_later_write(int32_t position, const ChunkEvent& here, int32_t token) const {
    double sum = 0.0;
    uint32_t word = here.word;
    while (!record_first(word)) {
      const ChunkEvent other = events_[--position];
      word = other.word;
      const int32_t other_token = record_token(word);
      if (event_read(word) || other_token == token) continue;
      sum += d_a(token, other_token) * other.weight * decay(here.log, other.log);
    }
    return sum;
  }

  const ChunkGradientsParams& params_;
  const ChunkShape shape_;
  const ChunkTokens tokens_;
  const int64_t first_row_;  // of the chunk among the staged tokens
  const ChunkEvent* events_;
  EventTerms* terms_;
};

}  // namespace sdm
