// A chunk's inputs, by place in its sorted order.
#pragma once
#include "kernels/chunk_prepare/chunk_prepare_params.h"
#include "kernels/common/chunk_groups.h"
#include "kernels/common/chunk_shape.h"
#include "kernels/common/typed_values.h"

namespace sdm {

inline constexpr int32_t kNoSlot = -1;  // padding

class ChunkInputs {
 public:
  SDM_HD ChunkInputs(const ChunkPrepareParams& params, int64_t chunk)
      : params_(params),
        shape_(shape_of(params)),
        tokens_(chunk_tokens(shape_, chunk)),
        order_(params.order + chunk * shape_.events()) {}

  SDM_HD int32_t size() const { return shape_.events(); }
  SDM_HD const ChunkShape& shape() const { return shape_; }
  SDM_HD int32_t place(int32_t position) const { return order_[position]; }
  SDM_HD Entry entry(int32_t position) const { return entry_at(shape_, order_[position]); }
  SDM_HD bool valid(const Entry& entry) const { return entry.token < tokens_.valid; }

  SDM_HD int32_t slot(const Entry& entry) const {
    if (!valid(entry)) return kNoSlot;
    const int64_t row = tokens_.first_row + entry.token;
    return entry.is_read
               ? load_index(params_.q_idx, params_.wide_q_idx, row * shape_.num_reads + entry.index)
               : load_index(params_.k_idx, params_.wide_k_idx,
                            row * shape_.num_writes + entry.index);
  }

  // k or q in the bank's precision; 0 for padding.
  SDM_HD float weight(const Entry& entry) const {
    if (!valid(entry)) return 0.0f;
    const int64_t row = tokens_.first_row + entry.token;
    const float value =
        entry.is_read
            ? load_value(params_.q_val, params_.q_val_type, row * shape_.num_reads + entry.index)
            : load_value(params_.k_val, params_.k_val_type, row * shape_.num_writes + entry.index);
    return params_.bf16_weights != 0 ? bf16_to_float(float_to_bf16(value)) : value;
  }

  SDM_HD float beta(int32_t token) const {
    if (token >= tokens_.valid) return 0.0f;
    return load_value(params_.beta, params_.beta_type, tokens_.first_row + token);
  }

  // The log decay of a write that is no padding. exp(-1000) is zero even in float64: the clamp
  // keeps -inf minus -inf out of the differences. A NaN stays.
  SDM_HD double log_decay(const Entry& write) const {
    const int64_t row = tokens_.first_row + write.token;
    const int64_t at = params_.num_gates == 1 ? row : row * params_.num_gates + write.index;
    const double g = load_value(params_.g, params_.g_type, at);
    return g < -1000.0 ? -1000.0 : g;
  }

  SDM_HD EventKind kind(int32_t position) const {
    const Entry here = entry(position);
    const int32_t own = slot(here);
    if (own == kNoSlot) return {true, !here.is_read, false};
    const bool first = position == 0 || slot(entry(position - 1)) != own;
    return {first, !here.is_read, !here.is_read && (first || only_reads_before(position, own))};
  }

 private:
  // Whether the events of the slot before this one are all reads.
  SDM_HD bool only_reads_before(int32_t position, int32_t own) const {
    while (--position >= 0) {
      const Entry before = entry(position);
      if (slot(before) != own) break;
      if (!before.is_read) return false;
    }
    return true;
  }

  const ChunkPrepareParams& params_;
  const ChunkShape shape_;
  const ChunkTokens tokens_;
  const int32_t* order_;
};

}  // namespace sdm
