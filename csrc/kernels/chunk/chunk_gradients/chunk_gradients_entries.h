// A chunk's entries, named by their events' words: the row dots that they give and the gradients
// that they take. Here both are in the tensors themselves; the device has a copy of its own for
// chunks that fit shared memory (chunk_gradients_staged.cuh).
#pragma once
#include "kernels/chunk/chunk_gradients/chunk_gradients_math.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_params.h"
#include "kernels/common/records/chunk_shape.h"
#include "kernels/common/rows/typed_values.h"

namespace sdm {

class TensorEntries {
 public:
  SDM_HD TensorEntries(const ChunkGradientsParams& params, int32_t chunk)
      : params_(params),
        chunk_(chunk),
        staged_row_(int64_t{chunk} * params.chunk_size),
        row_(chunk_tokens(shape_of(params), chunk).first_row()) {}

  // Whether a token of the chunk has entries here.
  SDM_HD bool holds(int32_t token) const {
    return token < chunk_tokens(shape_of(params_), chunk_).count(params_.chunk_size);
  }

  SDM_HD float dkeff(uint32_t word) const { return params_.dkeff[write(staged_row_, word)]; }
  SDM_HD float dpd(uint32_t word) const { return params_.dpd[write(staged_row_, word)]; }
  SDM_HD float d_total(uint32_t word) const { return params_.d_total[write(staged_row_, word)]; }
  SDM_HD float dqeff(uint32_t word) const { return params_.dqeff[read(staged_row_, word)]; }

  SDM_HD void put_dk(uint32_t word, float value) const {
    store_value(params_.dk, params_.dk_type, write(row_, word), value);
  }
  SDM_HD void put_dq(uint32_t word, float value) const {
    store_value(params_.dq, params_.dq_type, read(row_, word), value);
  }
  SDM_HD void put_gate(uint32_t word, double value) const {
    if (params_.gates != nullptr) {
      params_.gates[write(staged_row_, word)] = value;
    } else {
      store_value(params_.dg, params_.dg_type, write(row_, word), static_cast<float>(value));
    }
  }

  // For a non-padding token with one gate for all its writes, after every put_gate.
  SDM_HD void put_sum(int32_t token) const {
    const double* gates = params_.gates + (staged_row_ + token) * params_.num_writes;
    store_value(params_.dg, params_.dg_type, row_ + token, sum_gates(gates, params_.num_writes));
  }

 private:
  SDM_HD int64_t write(int64_t first_row, uint32_t word) const {
    return (first_row + record_token(word)) * params_.num_writes + record_index(word);
  }
  SDM_HD int64_t read(int64_t first_row, uint32_t word) const {
    return (first_row + record_token(word)) * params_.num_reads + record_index(word);
  }

  const ChunkGradientsParams& params_;
  const int32_t chunk_;
  const int64_t staged_row_;  // of the chunk in the staged tensors
  const int64_t row_;         // of the chunk in the caller's
};

}  // namespace sdm
