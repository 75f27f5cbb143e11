#include <algorithm>

#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/host_rows.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/layer/decode_step/decode_step.h"
#include "kernels/layer/decode_step/decode_step_math.h"
#include "kernels/layer/decode_step/decode_step_rows.h"

namespace sdm {
namespace {

constexpr int32_t kUnitColumns = 512;  // of one unit of work
constexpr int32_t kMostEntries = 256;

// What a token's entries come to, whatever the column.
class TokenTerms {
 public:
  SDM_HD void load(const DecodeStepParams& params, int32_t sequence, int32_t token) {
    const int64_t at = int64_t{sequence} * params.num_tokens + token;
    const SequenceRows rows{sequence * params.num_slots, params.num_slots};
    const bool key_weighted = params.key_weighted != 0;
    k_slots = params.k_idx + at * params.num_writes;
    q_slots = params.q_idx + at * params.num_reads;
    beta = params.beta[at];
    for (int32_t n = 0; n < params.num_writes; ++n) {
      const float k = params.k_val[at * params.num_writes + n];
      k_weights_[n] = in_precision(params.bank_type, k);
      const float g = params.g[at * params.num_gates + (params.num_gates == 1 ? 0 : n)];
      logs_[n] = write_log(g, k, key_weighted);
    }
    for (int32_t m = 0; m < params.num_reads; ++m) {
      q_weights_[m] = in_precision(params.bank_type, params.q_val[at * params.num_reads + m]);
    }
    const TokenWrites token_writes{k_slots, k_weights_, logs_, params.num_writes};
    const TokenReads token_reads{q_slots, q_weights_, params.num_reads};
    own = 0.0f;
    for (int32_t n = 0; n < params.num_writes; ++n) {
      writes[n] = write_terms(token_writes, rows, slot_decay(token_writes, k_slots[n]), n);
      held_writes[n] = rows.hold(k_slots[n]);
    }
    for (int32_t m = 0; m < params.num_reads; ++m) {
      const SlotDecay decay = slot_decay(token_writes, q_slots[m]);
      reads[m] = read_terms(token_writes, token_reads, rows, decay, m);
      held_reads[m] = rows.hold(q_slots[m]);
      own = plus(own, reads[m].own);
    }
  }

  const int32_t* k_slots;
  const int32_t* q_slots;
  WriteTerms writes[kMostEntries];
  ReadTerms reads[kMostEntries];
  bool held_writes[kMostEntries], held_reads[kMostEntries];
  float own;  // QK
  float beta;

 private:
  float k_weights_[kMostEntries], q_weights_[kMostEntries];
  double logs_[kMostEntries];
};

// Columns of a sequence, all tokens of it.
struct Unit {
  int32_t sequence;
  int32_t first, count;
};

// `count` columns of a row, added with a weight.
template <class Format>
SDM_HD void add_row(const char* from, float weight, int32_t count, float* sums) {
  const auto* row = reinterpret_cast<const StoredBits<Format>*>(from);
  for (int32_t c = 0; c < count; ++c) sums[c] = fused(weight, Format::decode(row[c]), sums[c]);
}

// The slot of write n, the first of its slot's.
template <class Format>
SDM_HD void write_row(const TokenTerms& terms, int32_t n, const float* deltas, int32_t count,
                      char* to) {
  float acc[kUnitColumns];
  const SlotWrite& slot = terms.writes[n].slot;
  for (int32_t c = 0; c < count; ++c) acc[c] = 0.0f;
  for (int32_t i = n; i < n + slot.count; ++i) {
    const float weight = terms.writes[i].slot.weight;
    for (int32_t c = 0; c < count; ++c) acc[c] = fused(weight, deltas[c], acc[c]);
  }
  auto* row = reinterpret_cast<StoredBits<Format>*>(to);
  for (int32_t c = 0; c < count; ++c) {
    const float m = fused(Format::decode(row[c]), slot.decay, acc[c]);
    row[c] = static_cast<StoredBits<Format>>(Format::encode(m));
  }
}

template <class Format>
SDM_HD void step_token(const DecodeStepParams& params, const Unit& unit, int32_t token,
                       const TokenTerms& terms) {
  const auto row = [&](int32_t slot) SDM_INLINE_LAMBDA {
    return row_address(params.bank, Format::kType, slot, params.hd, unit.first);
  };

  // The residual, and the reading of the bank before the token.
  float residuals[kUnitColumns], readings[kUnitColumns];
  const int64_t v = v_strides(params).row(unit.sequence, params.num_heads, token) + unit.first;
  with_plain_format(params.v_type, [&](auto format) SDM_INLINE_LAMBDA {
    const auto* values = static_cast<const StoredBits<decltype(format)>*>(params.v) + v;
    for (int32_t c = 0; c < unit.count; ++c) {
      residuals[c] = Format::decode(Format::encode(format.decode(values[c])));
    }
  });
  for (int32_t n = 0; n < params.num_writes; ++n) {
    if (!terms.held_writes[n]) continue;
    add_row<Format>(row(terms.k_slots[n]), terms.writes[n].residual, unit.count, residuals);
  }
  for (int32_t c = 0; c < unit.count; ++c) readings[c] = 0.0f;
  for (int32_t m = 0; m < params.num_reads; ++m) {
    if (!terms.held_reads[m]) continue;
    add_row<Format>(row(terms.q_slots[m]), terms.reads[m].reading, unit.count, readings);
  }

  // The reading, and the rows after the token.
  const int64_t to = readings_strides(params).row(unit.sequence, params.num_heads, token);
  auto* out = static_cast<StoredBits<Format>*>(params.readings) + to + unit.first;
  for (int32_t c = 0; c < unit.count; ++c) {
    residuals[c] = token_delta(terms.beta, residuals[c]);
    const float y = token_reading(readings[c], terms.own, residuals[c]);
    out[c] = static_cast<StoredBits<Format>>(Format::encode(y));
  }
  for (int32_t n = 0; n < params.num_writes; ++n) {
    const SlotWrite& slot = terms.writes[n].slot;
    if (slot.row >= 0) write_row<Format>(terms, n, residuals, unit.count, row(slot.row));
  }
}

SDM_MULTIVERSION
void decode_unit(const DecodeStepParams& params, const Unit& unit, TokenTerms& terms) {
  for (int32_t token = 0; token < params.num_tokens; ++token) {
    terms.load(params, unit.sequence, token);
    with_plain_format(params.bank_type, [&](auto format) SDM_INLINE_LAMBDA {
      step_token<decltype(format)>(params, unit, token, terms);
    });
  }
}

}  // namespace

void decode_step_host(const DecodeStepParams& params) {
  const int32_t parts = (params.hd + kUnitColumns - 1) / kUnitColumns;
  const int64_t elements = int64_t{params.num_parallel} * params.num_tokens *
                           (params.num_writes + params.num_reads) * params.hd;
#pragma omp parallel if (elements > kSerialElements)
  {
    const FloatMode mode;
    TokenTerms terms;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < int64_t{params.num_parallel} * parts; ++i) {
      const int32_t first = static_cast<int32_t>(i % parts) * kUnitColumns;
      decode_unit(
          params,
          {static_cast<int32_t>(i / parts), first, std::min(kUnitColumns, params.hd - first)},
          terms);
    }
  }
}

}  // namespace sdm
