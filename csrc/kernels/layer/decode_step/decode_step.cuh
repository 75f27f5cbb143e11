// decode_step on the device: a block owns some columns of a sequence and takes its tokens in order;
// all rows of a token are on their way at once (DESIGN.md).
//
// operand                written in the chain by   loaded
// bank                   decode_step               after the wait, L2
// k_idx, k_val           the selection             after the wait, L2
// q_idx, q_val           the selection             after the wait, L2
// v, beta, g             what projects x           after the wait, L2
// readings               decode_step               never (stored only)
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/rows/thread_rows.cuh"
#include "kernels/layer/decode_step/decode_step_params.h"
#include "kernels/layer/decode_step/decode_step_rows.h"
#include "kernels/layer/decode_step/decode_step_shape.h"

namespace sdm {

// What another launch has written.
__device__ __forceinline__ int32_t load_int_l2(const int32_t* from) {
  return static_cast<int32_t>(ptx::load_l2(reinterpret_cast<const uint32_t*>(from)));
}
__device__ __forceinline__ float load_float_l2(const float* from) {
  return bits_to_float(ptx::load_l2(reinterpret_cast<const uint32_t*>(from)));
}
__device__ __forceinline__ float load_value_l2(const void* values, RowType type, int64_t at) {
  return with_plain_format(type, [&](auto format) {
    using Bits = StoredBits<decltype(format)>;
    return format.decode(ptx::load_l2(static_cast<const Bits*>(values) + at));
  });
}

template <RowType kBank, int kColumns>
class DecodeBlock {
 public:
  static constexpr int kHeld = decode_piece(kBank);        // columns of a piece, 16 bytes
  static constexpr int kPieces = kColumns / kHeld;         // of a row's slice
  static constexpr int kTeams = kDecodeThreads / kPieces;  // rows that the block's threads hold
  static constexpr int kBatch = 4;                         // slots of a thread asked for at once
  using Raw = RawPiece<kBank, kHeld>;
  static_assert(sizeof(Raw) == 16 && kDecodeThreads % kPieces == 0);
  static_assert(2 * kColumns <= kDecodeThreads);

  __device__ __forceinline__ DecodeBlock(const DecodeStepParams& params, int32_t sequence)
      : params_(params),
        map_(decode_shared(kBank, kColumns, params.num_writes, params.num_reads)),
        shared_(ptx::dynamic_shared()),
        thread_(static_cast<int32_t>(threadIdx.x)),
        sequence_(sequence),
        first_column_(static_cast<int32_t>(blockIdx.x) * kColumns),
        bank_(params.bank, {bank_type(), bank_type()}, 0, params.hd, own_columns()) {}

  // One token; the block's threads meet before another one.
  __device__ __forceinline__ void step(int32_t token) {
    const int64_t at = int64_t{sequence_} * params_.num_tokens + token;

    // Everything that the token reads is asked for: rows first, they are the farthest.
    fetch_rows(at);
    float v = 0.0f;
    if (sums_residual() && inside()) {
      const int64_t row = v_strides(params_).row(sequence_, params_.num_heads, token);
      v = load_value_l2(params_.v, params_.v_type, row + column());
    }
    const float beta = load_float_l2(params_.beta + at);
    load_entries(at);
    __syncthreads();

    // The entries' weights, while the rows are on their way.
    weigh_entries();
    ptx::copy_wait<0>();
    __syncthreads();

    // Sums, a column a thread: the warps of the residual beside those of the reading.
    float reading = 0.0f, own = 0.0f;
    if (sums_residual()) {
      float residual = in_precision(bank_type(), v);
      const auto* weights = at_shared<float>(map_.residual_weights);
#pragma unroll 8
      for (int32_t n = 0; n < params_.num_writes; ++n) {
        residual = fused(weights[n], element(n), residual);
      }
      at_shared<float>(map_.residuals)[thread_] = residual;
    } else if (sums_reading()) {
      const auto* terms = at_shared<ReadTerms>(map_.read_terms);
#pragma unroll 8
      for (int32_t m = 0; m < params_.num_reads; ++m) {
        const ReadTerms term = read_terms_at(terms + m);
        reading = fused(term.reading, element(params_.num_writes + m), reading);
        own = plus(own, term.own);
      }
    }
    __syncthreads();

    // The reading, then the rows.
    if (sums_reading() && inside()) {
      const float residual = at_shared<float>(map_.residuals)[thread_ - kColumns];
      const int64_t row = readings_strides(params_).row(sequence_, params_.num_heads, token);
      store_value(params_.readings, bank_type(), row + column(),
                  token_reading(reading, own, beta, residual));
    }
    write_rows(beta);
  }

 private:
  __device__ __forceinline__ RowType bank_type() const {
    return kBank == kAnyRow ? params_.bank_type : kBank;
  }
  template <typename T>
  __device__ __forceinline__ T* at_shared(uint32_t offset) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }
  __device__ __forceinline__ SequenceRows rows() const {
    return {int64_t{sequence_} * params_.num_slots, params_.num_slots};
  }

  // Of the copies and of the rows' ends: the thread's piece of a row, and its first row.
  __device__ __forceinline__ int32_t piece() const { return thread_ % kPieces; }
  __device__ __forceinline__ int32_t team() const { return thread_ / kPieces; }
  __device__ __forceinline__ Columns own_columns() const {
    const int32_t column = first_column_ + piece() * kHeld;
    return {column, max(0, min(kHeld, params_.hd - column))};
  }
  __device__ __forceinline__ Raw* stage(int32_t entry) const {
    return at_shared<Raw>(map_.rows) + entry * kPieces + piece();
  }

  // Of the sums: the thread's column.
  __device__ __forceinline__ bool sums_residual() const { return thread_ < kColumns; }
  __device__ __forceinline__ bool sums_reading() const {
    return thread_ >= kColumns && thread_ < 2 * kColumns;
  }
  __device__ __forceinline__ int32_t column() const { return first_column_ + thread_ % kColumns; }
  __device__ __forceinline__ bool inside() const { return column() < params_.hd; }
  __device__ __forceinline__ float element(int32_t entry) const {
    const int32_t at = entry * kColumns + thread_ % kColumns;
    if constexpr (kBank == RowType::kBFloat16) {
      return bf16_to_float(at_shared<const uint16_t>(map_.rows)[at]);
    } else {
      return at_shared<const float>(map_.rows)[at];
    }
  }
  static __device__ __forceinline__ ReadTerms read_terms_at(const ReadTerms* from) {
    const float2 both = *reinterpret_cast<const float2*>(from);
    return {both.x, both.y};
  }

  // The slices of all rows, zeros for those of another sequence.
  __device__ __forceinline__ void fetch_rows(int64_t at) const {
    const int32_t entries = params_.num_writes + params_.num_reads;
    const int32_t* writes = params_.k_idx + at * params_.num_writes;
    const int32_t* reads = params_.q_idx + at * params_.num_reads;
    const SequenceRows own = rows();
#pragma unroll 1
    for (int32_t n = team(); n < entries; n += kBatch * kTeams) {
      int32_t slots[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const int32_t entry = min(n + u * kTeams, entries - 1);
        slots[u] = load_int_l2(entry < params_.num_writes ? writes + entry
                                                          : reads + (entry - params_.num_writes));
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const int32_t entry = n + u * kTeams;
        if (entry >= entries) break;
        bank_.fetch_or_clear(stage(entry), own.hold(slots[u]) ? slots[u] : -1);
      }
    }
    ptx::copy_commit();
  }

  // Slots, weights and log decays.
  __device__ __forceinline__ void load_entries(int64_t at) const {
    for (int32_t n = thread_; n < params_.num_writes; n += kDecodeThreads) {
      const int64_t from = at * params_.num_writes + n;
      const int32_t slot = load_int_l2(params_.k_idx + from);
      const float k = load_float_l2(params_.k_val + from);
      const int64_t gate = params_.num_gates == 1 ? at : from;
      const float g = load_float_l2(params_.g + gate);
      at_shared<int32_t>(map_.k_slots)[n] = slot;
      at_shared<float>(map_.k_weights)[n] = in_precision(bank_type(), k);
      at_shared<double>(map_.logs)[n] = write_log(g, k, params_.key_weighted != 0);
    }
    // From the last thread on: few entries then have a thread each.
    for (int32_t m = kDecodeThreads - 1 - thread_; m < params_.num_reads; m += kDecodeThreads) {
      const int64_t from = at * params_.num_reads + m;
      const int32_t slot = load_int_l2(params_.q_idx + from);
      const float q = load_float_l2(params_.q_val + from);
      at_shared<int32_t>(map_.q_slots)[m] = slot;
      at_shared<float>(map_.q_weights)[m] = in_precision(bank_type(), q);
    }
  }

  __device__ __forceinline__ void weigh_entries() const {
    const TokenWrites writes{at_shared<int32_t>(map_.k_slots), at_shared<float>(map_.k_weights),
                             at_shared<double>(map_.logs), params_.num_writes};
    const TokenReads reads{at_shared<int32_t>(map_.q_slots), at_shared<float>(map_.q_weights),
                           params_.num_reads};
    const SequenceRows own = rows();
    for (int32_t n = thread_; n < params_.num_writes; n += kDecodeThreads) {
      const WriteTerms terms = write_terms(writes, own, n);
      at_shared<float>(map_.residual_weights)[n] = terms.residual;
      at_shared<SlotWrite>(map_.slot_writes)[n] = terms.slot;
    }
    for (int32_t m = kDecodeThreads - 1 - thread_; m < params_.num_reads; m += kDecodeThreads) {
      at_shared<ReadTerms>(map_.read_terms)[m] = read_terms(writes, reads, own, m);
    }
  }

  // The rows after the token, from where they were fetched to.
  __device__ __forceinline__ void write_rows(float beta) const {
    constexpr RowType kFloats = RowType::kFloat32;
    float delta[kHeld];
    decode<kFloats, kHeld>(
        read_bits<sizeof(delta)>(at_shared<float>(map_.residuals) + piece() * kHeld), 1.0f, delta);
#pragma unroll
    for (float& d : delta) d = token_delta(beta, d);
    const auto* writes = at_shared<const SlotWrite>(map_.slot_writes);
#pragma unroll 2
    for (int32_t n = team(); n < params_.num_writes; n += kTeams) {
      const SlotWrite slot = slot_write(writes + n);
      if (slot.row < 0) continue;
      float acc[kHeld], m[kHeld];
#pragma unroll
      for (int c = 0; c < kHeld; ++c) acc[c] = fused(slot.weight, delta[c], 0.0f);
      for (int32_t i = 1; i < slot.count; ++i) {
        const float weight = writes[n + i].weight;
#pragma unroll
        for (int c = 0; c < kHeld; ++c) acc[c] = fused(weight, delta[c], acc[c]);
      }
      sdm::decode<kBank, kHeld>(read_bits<sizeof(Raw)>(stage(n)), 1.0f, m);
#pragma unroll
      for (int c = 0; c < kHeld; ++c) m[c] = fused(m[c], slot.decay, acc[c]);
      bank_.store(slot.row, encode<kBank, kHeld>(m));
    }
  }
  static __device__ __forceinline__ SlotWrite slot_write(const SlotWrite* from) {
    const uint4 v = *reinterpret_cast<const uint4*>(from);
    return {static_cast<int32_t>(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
            static_cast<int32_t>(v.w)};
  }

  const DecodeStepParams& params_;
  const DecodeShared map_;
  char* const shared_;
  const int32_t thread_, sequence_;
  const int32_t first_column_;
  const ThreadRows<kBank, kHeld> bank_;
};

template <RowType kBank, int kColumns>
__device__ __forceinline__ void decode_step_device(const DecodeStepParams& params) {
  const uint32_t sequence = blockIdx.z * gridDim.y + blockIdx.y;
  if (sequence >= static_cast<uint32_t>(params.num_parallel)) return;
  DecodeBlock<kBank, kColumns> block(params, static_cast<int32_t>(sequence));
  pdl_wait();
  pdl_trigger();
  for (int32_t token = 0; token < params.num_tokens; ++token) {
    if (token > 0) __syncthreads();  // its rows are in the bank, and what it kept is used
    block.step(token);
  }
}

}  // namespace sdm
