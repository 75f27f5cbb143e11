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
  static constexpr int kBatch = 8;                         // entries of a sum at once
  using Raw = RawPiece<kBank, kHeld>;
  static_assert(sizeof(Raw) == 16 && kDecodeThreads % kPieces == 0);
  static_assert(2 * kColumns <= kDecodeThreads && kDecodeThreads >= 256);  // entries: 256 at most

  __device__ __forceinline__ DecodeBlock(const DecodeStepParams& params, int32_t sequence)
      : params_(params),
        map_(decode_shared(kBank, kColumns, params.num_writes, params.num_reads)),
        shared_(ptx::dynamic_shared()),
        thread_(static_cast<int32_t>(threadIdx.x)),
        sequence_(sequence),
        first_column_(static_cast<int32_t>(blockIdx.x) * kColumns),
        bank_(params.bank, {bank_type(), bank_type()}, 0, params.hd, own_columns()) {}

  // What a thread brings to a token: a write, a read, and a column of the values.
  struct Given {
    int32_t k_slot, q_slot;
    float k, q, g;
    float v, beta;
  };
  __device__ __forceinline__ Given ask(int32_t token) const {
    const int64_t at = int64_t{sequence_} * params_.num_tokens + token;
    Given given{-1, -1, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (has_write()) {
      const int64_t from = at * params_.num_writes + thread_;
      given.k_slot = load_int_l2(params_.k_idx + from);
      given.k = load_float_l2(params_.k_val + from);
      given.g = load_float_l2(params_.g + (params_.num_gates == 1 ? at : from));
    }
    if (has_read()) {
      const int64_t from = at * params_.num_reads + own_read();
      given.q_slot = load_int_l2(params_.q_idx + from);
      given.q = load_float_l2(params_.q_val + from);
    }
    if (sums_residual() && inside()) {
      const int64_t row = v_strides(params_).row(sequence_, params_.num_heads, token);
      given.v = load_value_l2(params_.v, params_.v_type, row + column());
    }
    given.beta = load_float_l2(params_.beta + at);
    return given;
  }

  // One token, whose `given` becomes the next one's. Whatever the last token left in shared memory
  // is used by the time that all have put their entries there.
  __device__ __forceinline__ void step(int32_t token, Given& given) {
    put_entries(given);
    __syncthreads();
    const float beta = given.beta;
    float residual = in_precision(bank_type(), given.v);

    // All rows at once; the weights, and what the next token needs, while they are on their way.
    fetch_rows();
    const bool more = token + 1 < params_.num_tokens;
    if (more) given = ask(token + 1);
    weigh_entries();
    if (more) prefetch_rows(given);
    ptx::copy_wait<0>();
    __syncthreads();

    // Sums, a column a thread: the warps of the residual beside those of the reading.
    float reading = 0.0f, own = 0.0f;
    if (sums_residual()) {
      residual = add_writes(residual);
      at_shared<float>(map_.residuals)[thread_] = residual;
    } else if (sums_reading()) {
      add_reads(reading, own);
    }
    __syncthreads();

    // The reading, then the rows.
    if (sums_reading() && inside()) {
      residual = at_shared<float>(map_.residuals)[thread_ - kColumns];
      const int64_t row = readings_strides(params_).row(sequence_, params_.num_heads, token);
      store_value(params_.readings, bank_type(), row + column(),
                  token_reading(reading, own, token_delta(beta, residual)));
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
    return {sequence_ * params_.num_slots, params_.num_slots};
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
  // Of the entries: the thread's write and read, from both ends of the block.
  __device__ __forceinline__ bool has_write() const { return thread_ < params_.num_writes; }
  __device__ __forceinline__ int32_t own_read() const { return kDecodeThreads - 1 - thread_; }
  __device__ __forceinline__ bool has_read() const { return own_read() < params_.num_reads; }

  __device__ __forceinline__ void put_entries(const Given& given) const {
    if (has_write()) {
      at_shared<int32_t>(map_.k_slots)[thread_] = given.k_slot;
      at_shared<float>(map_.k_weights)[thread_] = in_precision(bank_type(), given.k);
      at_shared<double>(map_.logs)[thread_] =
          write_log(given.g, given.k, params_.key_weighted != 0);
    }
    if (has_read()) {
      at_shared<int32_t>(map_.q_slots)[own_read()] = given.q_slot;
      at_shared<float>(map_.q_weights)[own_read()] = in_precision(bank_type(), given.q);
    }
  }

  // The slices of all rows, zeros for those of another sequence.
  __device__ __forceinline__ void fetch_rows() const {
    const int32_t entries = params_.num_writes + params_.num_reads;
    const auto* k_slots = at_shared<const int32_t>(map_.k_slots);
    const auto* q_slots = at_shared<const int32_t>(map_.q_slots);
    const SequenceRows own = rows();
    constexpr int kTogether = kBank == kAnyRow ? 1 : 4;  // no copies there, and registers are short
#pragma unroll 1
    for (int32_t n = team(); n < entries; n += kTogether * kTeams) {
      int32_t slots[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const int32_t entry = min(n + u * kTeams, entries - 1);
        const bool is_read = entry >= params_.num_writes;
        slots[u] = (is_read ? q_slots - params_.num_writes : k_slots)[entry];
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        if (n + u * kTeams >= entries) break;
        bank_.fetch_or_clear(stage(n + u * kTeams), own.hold(slots[u]) ? slots[u] : -1);
      }
    }
    ptx::copy_commit();
  }

  // The next token's rows into L2: what this one writes there is newer by the time it is read.
  __device__ __forceinline__ void prefetch_rows(const Given& given) const {
    if (has_write()) prefetch_row(given.k_slot);
    if (has_read()) prefetch_row(given.q_slot);
  }
  __device__ __forceinline__ void prefetch_row(int32_t slot) const {
    constexpr int64_t kSector = 32;
    if (!rows().hold(slot)) return;
    const int64_t first = int64_t{slot} * params_.hd + first_column_;
    const char* bank = static_cast<const char*>(params_.bank);
    const char* from = bank + row_bytes(bank_type(), first);
    const int32_t columns = min(kColumns, params_.hd - first_column_);
    const char* end = from + row_bytes(bank_type(), columns);
#pragma unroll 1
    for (; from < end; from += kSector) ptx::prefetch_l2(from);
  }

  __device__ __forceinline__ void weigh_entries() const {
    const TokenWrites writes{at_shared<int32_t>(map_.k_slots), at_shared<float>(map_.k_weights),
                             at_shared<double>(map_.logs), params_.num_writes};
    const TokenReads reads{at_shared<int32_t>(map_.q_slots), at_shared<float>(map_.q_weights),
                           params_.num_reads};
    const SequenceRows own = rows();
    // Writes, then reads, by the same code: there is less of it to fetch.
#pragma unroll 1
    for (int32_t kind = 0; kind < 2; ++kind) {
      const bool is_read = kind == 1;
      if (!(is_read ? has_read() : has_write())) continue;
      const int32_t entry = is_read ? own_read() : thread_;
      const SlotDecay decay = slot_decay(writes, (is_read ? reads.slots : writes.slots)[entry]);
      if (is_read) {
        at_shared<ReadTerms>(map_.read_terms)[entry] = read_terms(writes, reads, own, decay, entry);
      } else {
        const WriteTerms terms = write_terms(writes, own, decay, entry);
        at_shared<float>(map_.residual_weights)[entry] = terms.residual;
        at_shared<SlotWrite>(map_.slot_writes)[entry] = terms.slot;
      }
    }
  }

  // Batches, so that the loads of one are together and its weights come four at a time.
  __device__ __forceinline__ float add_writes(float residual) const {
    const auto* weights = at_shared<const float>(map_.residual_weights);
    const int32_t whole = params_.num_writes / kBatch * kBatch;
#pragma unroll 1
    for (int32_t n = 0; n < whole; n += kBatch) {
      float weight[kBatch], m[kBatch];
      decode<RowType::kFloat32, kBatch>(read_bits<sizeof(weight)>(weights + n), 1.0f, weight);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) m[u] = element(n + u);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) residual = fused(weight[u], m[u], residual);
    }
#pragma unroll 1
    for (int32_t n = whole; n < params_.num_writes; ++n) {
      residual = fused(weights[n], element(n), residual);
    }
    return residual;
  }

  // The reading of the old bank, and QK beside it.
  __device__ __forceinline__ void add_reads(float& reading, float& own) const {
    const auto* terms = at_shared<const float>(map_.read_terms);
    const int32_t first = params_.num_writes, whole = params_.num_reads / kBatch * kBatch;
#pragma unroll 1
    for (int32_t n = 0; n < whole; n += kBatch) {
      float term[2 * kBatch], m[kBatch];
      decode<RowType::kFloat32, 2 * kBatch>(read_bits<sizeof(term)>(terms + 2 * n), 1.0f, term);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) m[u] = element(first + n + u);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        reading = fused(term[2 * u], m[u], reading);
        own = plus(own, term[2 * u + 1]);
      }
    }
#pragma unroll 1
    for (int32_t n = whole; n < params_.num_reads; ++n) {
      reading = fused(terms[2 * n], element(first + n), reading);
      own = plus(own, terms[2 * n + 1]);
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
#pragma unroll 1
    for (int32_t n = team(); n < params_.num_writes; n += kTeams) {
      const SlotWrite slot = slot_write(writes + n);
      if (slot.row < 0) continue;
      float acc[kHeld], m[kHeld];
#pragma unroll
      for (int c = 0; c < kHeld; ++c) acc[c] = fused(slot.weight, delta[c], 0.0f);
#pragma unroll 1
      for (int32_t i = 1; i < slot.count; ++i) {
        const float weight = writes[n + i].weight;
#pragma unroll
        for (int c = 0; c < kHeld; ++c) acc[c] = fused(weight, delta[c], acc[c]);
      }
      decode<kBank, kHeld>(read_bits<sizeof(Raw)>(stage(n)), 1.0f, m);
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
  auto given = block.ask(0);
  for (int32_t token = 0; token < params.num_tokens; ++token) block.step(token, given);
}

}  // namespace sdm
