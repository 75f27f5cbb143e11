// A whole chunk's entries in shared memory: a block reads their dots in order, its threads take
// them by slot and leave the gradients in their place, and the block writes those in order.
#pragma once
#include "kernels/chunk/chunk_gradients/chunk_gradients_block.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_math.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_params.h"
#include "kernels/common/ptx/ptx.cuh"
#include "kernels/common/rows/typed_values.h"

namespace sdm {

// As TensorEntries.
class StagedEntries {
 public:
  __device__ __forceinline__ StagedEntries(const ChunkGradientsParams& params, int32_t chunk)
      : params_(params), chunk_(chunk) {
    const StagedLayout layout(shape_of(params));
    char* shared = ptx::dynamic_shared();
    gates_ = reinterpret_cast<double*>(shared);
    keys_ = reinterpret_cast<float*>(shared + layout.keys);
    queries_ = reinterpret_cast<float*>(shared + layout.queries);
  }

  // By all threads; then a barrier.
  __device__ __forceinline__ void load() const {
    const ChunkShape shape = shape_of(params_);
    const int64_t writes = int64_t{chunk_} * shape.writes();
    for_all(shape.writes(), [&](int32_t i) {
      auto* dots = reinterpret_cast<float*>(gates_ + gate_at(i));
      ptx::copy_async<4>(keys_ + i, params_.dkeff + writes + i);
      ptx::copy_async<4>(dots, params_.dpd + writes + i);
      ptx::copy_async<4>(dots + 1, params_.d_total + writes + i);
    });
    const int64_t reads = int64_t{chunk_} * shape.reads();
    for_all(shape.reads(),
            [&](int32_t i) { ptx::copy_async<4>(queries_ + i, params_.dqeff + reads + i); });
    ptx::copy_commit();
    ptx::copy_wait<0>();
  }

  // By all threads, behind a barrier after every put.
  __device__ __forceinline__ void store() const {
    const ChunkTokens tokens = chunk_tokens(shape_of(params_), chunk_);
    const int32_t real = tokens.count(params_.chunk_size);
    const int64_t writes = tokens.first_row() * params_.num_writes;
    for_all(real * params_.num_writes,
            [&](int32_t i) { store_value(params_.dk, params_.dk_type, writes + i, keys_[i]); });
    const int64_t reads = tokens.first_row() * params_.num_reads;
    for_all(real * params_.num_reads,
            [&](int32_t i) { store_value(params_.dq, params_.dq_type, reads + i, queries_[i]); });
    if (params_.num_gates < params_.num_writes) {
      for_all(real, [&](int32_t token) {
        const double* gates = gates_ + token * (params_.num_writes + 1);
        store_value(params_.dg, params_.dg_type, tokens.first_row() + token,
                    sum_gates(gates, params_.num_writes));
      });
    } else {
      for_all(real * params_.num_writes, [&](int32_t i) {
        store_value(params_.dg, params_.dg_type, writes + i,
                    static_cast<float>(gates_[gate_at(i)]));
      });
    }
  }

  // Padding has room here too, and is never stored.
  __device__ __forceinline__ bool holds(int32_t) const { return true; }

  __device__ __forceinline__ float dkeff(uint32_t word) const { return keys_[write(word)]; }
  __device__ __forceinline__ float dpd(uint32_t word) const { return dots(word).dpd; }
  __device__ __forceinline__ float d_total(uint32_t word) const { return dots(word).d_total; }
  __device__ __forceinline__ float dqeff(uint32_t word) const { return queries_[read(word)]; }

  __device__ __forceinline__ void put_dk(uint32_t word, float value) const {
    keys_[write(word)] = value;
  }
  __device__ __forceinline__ void put_dq(uint32_t word, float value) const {
    queries_[read(word)] = value;
  }
  // In place of the write's dpd and d_total: its last.
  __device__ __forceinline__ void put_gate(uint32_t word, double value) const {
    gates_[gate(word)] = value;
  }

 private:
  // What is where a gate will be.
  struct alignas(8) GateDots {
    float dpd, d_total;
  };

  __device__ __forceinline__ GateDots dots(uint32_t word) const {
    return __builtin_bit_cast(GateDots, gates_[gate(word)]);
  }

  __device__ __forceinline__ int32_t write(uint32_t word) const {
    return record_token(word) * params_.num_writes + record_index(word);
  }
  __device__ __forceinline__ int32_t read(uint32_t word) const {
    return record_token(word) * params_.num_reads + record_index(word);
  }
  __device__ __forceinline__ int32_t gate(uint32_t word) const {
    return write(word) + record_token(word);
  }
  __device__ __forceinline__ int32_t gate_at(int32_t write) const {
    return write + write / params_.num_writes;
  }

  template <typename Visit>
  __device__ static __forceinline__ void for_all(int32_t count, const Visit& visit) {
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count;
         i += static_cast<int32_t>(blockDim.x)) {
      visit(i);
    }
  }

  const ChunkGradientsParams& params_;
  const int32_t chunk_;
  double* gates_;
  float* keys_;     // dkeff, then dk
  float* queries_;  // dqeff, then dq
};

}  // namespace sdm
