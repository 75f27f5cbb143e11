// A chunk's inputs, by place in its sorted order.
#pragma once
#include "kernels/chunk/chunk_prepare/chunk_prepare_params.h"
#include "kernels/common/records/chunk_shape.h"
#include "kernels/common/rows/typed_values.h"

namespace sdm {

class ChunkInputs {
 public:
  SDM_HD ChunkInputs(const ChunkPrepareParams& params, int64_t chunk)
      : params_(params),
        shape_(shape_of(params)),
        real_tokens_(chunk_tokens(shape_, static_cast<int32_t>(chunk)).count(shape_.chunk_size)),
        first_row_(chunk_tokens(shape_, static_cast<int32_t>(chunk)).first_row()),
        first_(chunk * shape_.events()),
        token_factor_(0xffffffffu / static_cast<uint32_t>(shape_.per_token()) + 1) {}

  SDM_HD int32_t size() const { return shape_.events(); }
  SDM_HD const ChunkShape& shape() const { return shape_; }

  SDM_HD int32_t place(int32_t position) const { return params_.order[first_ + position]; }

  // As entry_at, without a division: with a factor of 2^32 / per_token rounded up, a place below
  // 2^17 and at most 2^9 entries a token the product's upper half is exact.
  SDM_HD Entry entry(int32_t place) const {
    const auto wide = uint64_t{static_cast<uint32_t>(place)} * token_factor_;
    const auto token = static_cast<int32_t>(wide >> 32);
    const int32_t column = place - token * shape_.per_token();
    const bool is_read = column >= shape_.num_writes;
    return {token, is_read ? column - shape_.num_writes : column, is_read};
  }

  SDM_HD int32_t slot(int32_t position) const { return params_.sorted_slots[first_ + position]; }

  // Whether `position`, of slot `own`, is its group's last. An event without a slot is a group.
  SDM_HD bool last(int32_t position, int32_t own) const {
    return own == kNoSlot || position + 1 == size() || slot(position + 1) != own;
  }

  // k or q in the bank's precision; 0 for an event without a slot, as padding's is.
  SDM_HD float weight(const Entry& entry, int32_t slot) const {
    if (slot == kNoSlot) return 0.0f;
    // One load: the lanes of a warp have both kinds.
    const bool is_read = entry.is_read;
    const int64_t width = is_read ? shape_.num_reads : shape_.num_writes;
    const int32_t in_chunk = entry.token * static_cast<int32_t>(width) + entry.index;
    const float value = load_value(is_read ? params_.q_val : params_.k_val,
                                   is_read ? params_.q_val_type : params_.k_val_type,
                                   first_row_ * width + in_chunk);
    return params_.bf16_weights != 0 ? bf16_to_float(float_to_bf16(value)) : value;
  }

  SDM_HD float beta(int32_t token) const {
    if (token >= real_tokens_) return 0.0f;
    return load_value(params_.beta, params_.beta_type, first_row_ + token);
  }

  // The log decay of a write that has a slot. exp(-1000) is zero even in float64: the clamp
  // keeps -inf minus -inf out of the differences. A NaN stays.
  SDM_HD double log_decay(const Entry& write) const {
    const int32_t in_chunk =
        params_.num_gates == 1 ? write.token : write.token * params_.num_gates + write.index;
    const double g =
        load_value(params_.g, params_.g_type, first_row_ * params_.num_gates + in_chunk);
    return g < -1000.0 ? -1000.0 : g;
  }

  // Of a token's writes to one slot, from their first on: a token that writes a slot twice decays
  // it by both gates before either write.
  SDM_HD double token_log(int32_t position, Entry write, int32_t own) const {
    const int32_t token = write.token;
    double sum = 0.0;
    for (;;) {
      sum += log_decay(write);
      if (last(position, own)) return sum;
      write = entry(place(++position));
      if (write.is_read || write.token != token) return sum;
    }
  }

 private:
  const ChunkPrepareParams& params_;
  const ChunkShape shape_;
  const int32_t real_tokens_;
  const int64_t first_row_;  // of its tokens in the inputs
  const int64_t first_;      // of the chunk's events
  const uint32_t token_factor_;
};

}  // namespace sdm
