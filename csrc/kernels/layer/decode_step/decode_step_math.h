// What one token's entries come to, for the host twin and the device kernel: the arithmetic of
// chunk_prepare and pair_matrices for a chunk of one token, so that the bits are those of the
// chain.
#pragma once
#include <cmath>

#include "kernels/common/math/ordered_math.h"
#include "kernels/common/rows/typed_values.h"

namespace sdm {

// A token's writes, or its reads, in ascending slots: those of one slot stand side by side.
struct TokenReads {
  const int32_t* slots;
  const float* weights;  // in the bank's precision
  int32_t count;
};
struct TokenWrites {
  const int32_t* slots;
  const float* weights;
  const double* logs;  // log decays
  int32_t count;
};

// The bank rows of one sequence. Entries of others do nothing.
struct SequenceRows {
  int32_t first, count;
  // Unsigned: what is below wraps around to far above.
  SDM_HD bool hold(int32_t slot) const {
    return static_cast<uint32_t>(slot) - static_cast<uint32_t>(first) <
           static_cast<uint32_t>(count);
  }
};

// What is done to the row of a write.
struct alignas(16) SlotWrite {
  int32_t row;    // -1: not the first of its slot's, or of another sequence's
  float weight;   // pd
  float decay;    // cpe
  int32_t count;  // writes of the slot, from its first on
};
static_assert(sizeof(SlotWrite) == 16);

// A write: its weight in the residual and what is done to the row.
struct WriteTerms {
  float residual;  // -keff
  SlotWrite slot;
};

// A read: its weight in the reading of the old bank, and what it sees of the token's own writes.
struct alignas(8) ReadTerms {
  float reading;  // qeff
  float own;
};

// A weight of -0 times a row of zeros leaves every accumulator as it is.
inline constexpr float kNoWeight = -0.0f;

// A value as the bank's rows would hold it.
SDM_HD float in_precision(RowType bank, float value) {
  return with_plain_format(
      bank, [&](auto format) SDM_INLINE_LAMBDA { return format.decode(format.encode(value)); });
}

// The log decay of a write. exp(-1000) is zero even in float64; a NaN stays.
SDM_HD double write_log(float g, float k, bool key_weighted) {
  const double log = key_weighted ? times(g, k) : g;
  return log < -1000.0 ? -1000.0 : log;
}

// The first of the entries of that slot, or `count`.
SDM_HD int32_t slot_begin(const int32_t* slots, int32_t count, int32_t slot) {
  int32_t begin = 0, end = count;
  SDM_ROLLED while (begin < end) {
    const int32_t middle = (begin + end) / 2;
    if (slots[middle] < slot) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < count && slots[begin] == slot ? begin : count;
}

// Behind the last of the entries from `begin` on that name its slot.
SDM_HD int32_t slot_end(const int32_t* slots, int32_t count, int32_t begin) {
  int32_t end = begin;
  SDM_ROLLED while (end < count && slots[end] == slots[begin])++ end;
  return end;
}

// A slot's writes in the token, [begin, end), and its decay. `all` is exp of their log decays,
// chunk_prepare's begun and total, and 1 without a write; `rest` is what is left from the token to
// its end: 1, or NaN for logs whose difference is NaN.
struct SlotDecay {
  int32_t begin, end;
  float all, rest;
};

// A token that writes a slot twice decays it by both gates before either write.
SDM_HD SlotDecay slot_decay(const TokenWrites& writes, int32_t slot) {
  const int32_t begin = slot_begin(writes.slots, writes.count, slot);
  const int32_t end = slot_end(writes.slots, writes.count, begin);
  double log = 0.0;
  SDM_ROLLED for (int32_t n = begin; n < end; ++n) log += writes.logs[n];
  return {begin, end, static_cast<float>(::exp(log)), plus(static_cast<float>(log - log), 1.0f)};
}

// Of write n and its slot's decay.
SDM_HD WriteTerms write_terms(const TokenWrites& writes, const SequenceRows& rows,
                              const SlotDecay& decay, int32_t n) {
  const int32_t slot = writes.slots[n];
  if (!rows.hold(slot)) return {kNoWeight, {-1, 0.0f, 1.0f, 0}};
  const bool first = n == decay.begin;
  const float weight = writes.weights[n];
  return {-times(weight, decay.all),
          {first ? slot : -1, times(weight, decay.rest), decay.all, first ? decay.end - n : 0}};
}

// Of read m. The reads of one slot share what they see of the token's writes: the first one has it
// for all.
SDM_HD ReadTerms read_terms(const TokenWrites& writes, const TokenReads& reads,
                            const SequenceRows& rows, const SlotDecay& decay, int32_t m) {
  const int32_t slot = reads.slots[m];
  if (!rows.hold(slot)) return {kNoWeight, 0.0f};
  const float reading = times(reads.weights[m], decay.all);
  const bool first = m == 0 || reads.slots[m - 1] != slot;
  if (decay.begin == decay.end || !first) return {reading, 0.0f};
  double read = 0.0, written = 0.0;
  const int32_t end = slot_end(reads.slots, reads.count, m);
  SDM_ROLLED for (int32_t i = m; i < end; ++i) read += reads.weights[i];
  SDM_ROLLED for (int32_t n = decay.end - 1; n >= decay.begin; --n) written += writes.weights[n];
  return {reading, static_cast<float>(read * written * decay.rest)};
}

// The token's delta of one column, as gx_gemm adds it up from +0.
SDM_HD float token_delta(float beta, float residual) { return fused(beta, residual, 0.0f); }

// The reading of one column: of the old bank, and of the token's own writes (`own`: QK), as
// chunk_readings adds them up.
SDM_HD float token_reading(float reading, float own, float delta) {
  return plus(reading, fused(own, delta, 0.0f));
}

}  // namespace sdm
