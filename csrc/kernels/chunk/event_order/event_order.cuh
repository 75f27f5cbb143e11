// event_order on the device: a block sorts a chunk by digits of the key, the lowest first. In each
// pass a warp has a range of the list; it counts its digits, the block adds up what lies before
// each warp's, and the warp puts its words there, 32 at a time: those of one digit in the order of
// their lanes, so the sort is stable. An ordinary launch before the chain: it waits for no grid.
#pragma once
#include "kernels/chunk/event_order/event_order_block.h"
#include "kernels/chunk/event_order/event_order_math.h"
#include "kernels/common/ptx/ptx.cuh"

namespace sdm {

// Words of key and place, in shared memory.
template <typename Bits>
class PackedWords {
 public:
  using Word = Bits;
  static constexpr int32_t kBytes = sizeof(Word);

  __device__ PackedWords(const EventOrderParams& params, const ChunkKeys& keys, char* shared,
                         const OrderLayout& layout, int32_t)
      : from(reinterpret_cast<Word*>(shared + layout.from)),
        to(reinterpret_cast<Word*>(shared + layout.to)),
        keys_(keys),
        place_bits_(params.place_bits) {}

  // The slots are fetched into the words' own memory, all at once, and made words there: their low
  // halves into one list's, their high ones (if there are any) into the other's.
  __device__ void fetch(int32_t place) const {
    const SlotAddress slot = keys_.slot_at(place);
    ptx::copy_async<4>(from + place, slot.low);
    if (!keys_.any_wide()) return;
    if (slot.wide) {
      ptx::copy_async<4>(to + place, slot.low + 1);
    } else {
      to[place] = 0;
    }
  }
  __device__ void arrive() const {
    ptx::copy_commit();
    ptx::copy_wait<0>();
  }
  __device__ Word make(int32_t place) const {
    const GivenSlot slot{half(from[place]), keys_.any_wide() ? half(to[place]) : 0};
    return Word{keys_.key(slot)} << place_bits_ | static_cast<Word>(place);
  }
  __device__ uint32_t key(Word word, int32_t shift) const {
    return static_cast<uint32_t>(word >> (place_bits_ + shift));
  }
  __device__ int32_t place(Word word) const {
    return static_cast<int32_t>(word & ((Word{1} << place_bits_) - 1));
  }

  Word *from, *to;

 private:
  __device__ static int32_t half(Word word) {
    return static_cast<int32_t>(static_cast<uint32_t>(word));
  }

  const ChunkKeys& keys_;
  const int32_t place_bits_;
};

// Places alone, in the outputs' memory, so that the last pass leaves them in `order`. Keys are read
// again and again.
class GlobalWords {
 public:
  using Word = int32_t;
  static constexpr int32_t kBytes = 0;

  __device__ GlobalWords(const EventOrderParams&, const ChunkKeys& keys, char*, const OrderLayout&,
                         int32_t passes)
      : from(passes % 2 == 0 ? keys.order_out() : keys.slots_out()),
        to(passes % 2 == 0 ? keys.slots_out() : keys.order_out()),
        keys_(keys) {}

  __device__ void fetch(int32_t) const {}
  __device__ void arrive() const {}
  __device__ Word make(int32_t place) const { return place; }
  __device__ uint32_t key(Word word, int32_t shift) const {
    return keys_.key(keys_.slot_at(word).load()) >> shift;
  }
  __device__ int32_t place(Word word) const { return word; }

  Word *from, *to;

 private:
  const ChunkKeys& keys_;
};

__device__ __forceinline__ int32_t warp_min(int32_t value) {
  for (int32_t distance = 16; distance > 0; distance /= 2) {
    value = min(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}

// Of the event at `place`, if there is one, to the host: nothing waits for the store.
__device__ __forceinline__ void tell(const EventOrderParams& params, const ChunkKeys& keys,
                                     int32_t place, int32_t is_read) {
  if (params.outside == nullptr || place >= keys.real()) return;
  const auto sequence = static_cast<int32_t>(blockIdx.x) % params.num_parallel;
  *static_cast<volatile int64_t*>(params.outside + is_read) =
      outside_word(sequence, keys.slot_at(place));
}

// Sorted by its keys, a chunk's list ends with the last row's events and those outside, by their
// places. One warp looks for them in the inputs once more, to tell of a write and of a read that is
// outside, and puts the last row's before the others. It is rare, and may be slow.
__device__ __forceinline__ void move_outside(const EventOrderParams& params, int32_t lane) {
  const ChunkKeys keys(params, static_cast<int32_t>(ptx::opaque(blockIdx.x)));
  int32_t count = 0;
  int32_t first_write = keys.real(), first_read = keys.real();
#pragma unroll 1
  for (int32_t at = lane; at - lane < keys.real(); at += 32) {
    const SlotAddress slot = keys.slot_at(min(at, keys.real() - 1));
    const bool outside = at < keys.real() && keys.outside(slot.load());
    if (outside && slot.is_read) first_read = min(first_read, at);
    if (outside && !slot.is_read) first_write = min(first_write, at);
    count += __popc(__ballot_sync(~0u, outside));
  }
  tell(params, keys, warp_min(first_write), 0);
  tell(params, keys, warp_min(first_read), 1);

  // From the last place to the first, each kind's events from its last position on.
  int32_t outside_end = keys.real(), inside_end = keys.real() - count;
#pragma unroll 1
  for (int32_t row = (keys.real() - 1) / 32; row >= 0; --row) {
    const int32_t place = 32 * row + lane;
    const GivenSlot slot = keys.slot_at(min(place, keys.real() - 1)).load();
    const bool has_slot = place < keys.real(), outside = has_slot && keys.outside(slot);
    const bool inside = has_slot && !outside && keys.key(slot) == keys.last_key();
    const uint32_t behind = ~(1u << lane | ((1u << lane) - 1u));
    const uint32_t others = __ballot_sync(~0u, outside), own = __ballot_sync(~0u, inside);
    if (outside) keys.store_outside(outside_end - 1 - __popc(others & behind), place);
    if (inside) keys.store(inside_end - 1 - __popc(own & behind), keys.last_key(), place);
    outside_end -= __popc(others);
    inside_end -= __popc(own);
  }
}

template <typename Words, int kBits>
class OrderBlock {
 public:
  static __device__ __forceinline__ void run(const EventOrderParams& params) {
    const auto threads = static_cast<int32_t>(blockDim.x);
    const ChunkKeys keys(params, static_cast<int32_t>(blockIdx.x));
    const OrderLayout layout(threads, kBits, keys.size(), Words::kBytes);
    char* shared = ptx::dynamic_shared();
    const int32_t passes = max(1, (params.key_bits + kBits - 1) / kBits);
    OrderBlock order{keys, {params, keys, shared, layout, passes}, shared, layout};

    // Sort.
    order.clear();
    order.load();
    for (int32_t pass = 0; pass < passes; ++pass) {
      const int32_t shift = pass * kBits;
      if (pass > 0) {
        order.clear();
        order.count(shift);
      }
      __syncthreads();
      order.add_up();
      order.move(shift);
      __syncthreads();
      auto* const sorted = order.words_.to;
      order.words_.to = order.words_.from;
      order.words_.from = sorted;
    }

    // Store. The chunk is looked up again, so that the passes need no registers for it.
    const ChunkKeys out(params, static_cast<int32_t>(ptx::opaque(blockIdx.x)));
#pragma unroll kRows
    for (int32_t at = order.thread_; at < out.real(); at += threads) {
      const Word word = order.words_.from[at];
      out.store(at, order.words_.key(word, 0), order.words_.place(word));
    }
#pragma unroll 1
    for (int32_t at = out.real() + order.thread_; at < keys.size(); at += threads) {
      out.store_padding(at);
    }

    // What is outside is among those of the last key, at the list's end.
    bool outside = false;
#pragma unroll 1
    for (int32_t at = out.real() - 1 - order.thread_; at >= 0; at -= threads) {
      const Word word = order.words_.from[at];
      if (order.words_.key(word, 0) != out.last_key()) break;
      outside |= out.outside(out.slot_at(order.words_.place(word)).load());
    }
    if (__syncthreads_or(outside) && threadIdx.x < 32)
      move_outside(params, static_cast<int32_t>(threadIdx.x));
  }

 private:
  using Word = typename Words::Word;
  static constexpr int32_t kDigits = 1 << kBits;
  static constexpr int32_t kRows = 4;  // of 32 words, at once

  // A lane's digits side by side, moved at once.
  static constexpr int32_t kLaneDigits = kDigits / 32;
  struct alignas(kLaneDigits < 4 ? 4 * kLaneDigits : 16) LaneCounts {
    uint32_t of[kLaneDigits];
  };

  __device__ OrderBlock(const ChunkKeys& keys, const Words& words, char* shared,
                        const OrderLayout& layout)
      : words_(words),
        thread_(static_cast<int32_t>(threadIdx.x)),
        lane_(thread_ % 32),
        totals_(reinterpret_cast<uint32_t*>(shared)),
        counters_(reinterpret_cast<uint32_t*>(shared + layout.counters)),
        // From one lane, so that the compiler knows it for all.
        warp_(__shfl_sync(~0u, thread_ / 32, 0)),
        own_(counters_ + warp_ * kDigits) {
    const auto warps = static_cast<int32_t>(blockDim.x) / 32;
    const int32_t rows = (keys.real() + 31) / 32;
    const int32_t length = (rows + warps - 1) / warps * 32;
    begin_ = min(warp_ * length, keys.real());
    end_ = min(begin_ + length, keys.real());
  }

  __device__ uint32_t digit(Word word, int32_t shift) const {
    return words_.key(word, shift) % kDigits;
  }

  __device__ LaneCounts& lane_counts(uint32_t* counters) const {
    return reinterpret_cast<LaneCounts*>(counters)[lane_];
  }

  __device__ void clear() const {
    lane_counts(own_) = LaneCounts{};
    __syncwarp();
  }

  // The list as it is staged, and its lowest digits.
  __device__ void load() const {
#pragma unroll kRows
    for (int32_t place = begin_ + lane_; place < end_; place += 32) words_.fetch(place);
    words_.arrive();
#pragma unroll kRows
    for (int32_t place = begin_ + lane_; place < end_; place += 32) {
      const Word word = words_.make(place);
      words_.from[place] = word;
      atomicAdd(own_ + digit(word, 0), 1u);
    }
  }

  __device__ void count(int32_t shift) const {
#pragma unroll kRows
    for (int32_t at = begin_ + lane_; at < end_; at += 32) {
      atomicAdd(own_ + digit(words_.from[at], shift), 1u);
    }
  }

  // From counts to the position of each warp's first word of each digit.
  __device__ void add_up() const {
    const auto threads = static_cast<int32_t>(blockDim.x);
    for (int32_t digit = thread_; digit < kDigits; digit += threads) {
      uint32_t sum = 0;
#pragma unroll 8
      for (int32_t at = digit; at < threads / 32 * kDigits; at += kDigits) {
        const uint32_t count = counters_[at];
        counters_[at] = sum;
        sum += count;
      }
      totals_[digit] = sum;
    }
    __syncthreads();
    const LaneCounts totals = lane_counts(totals_);
    uint32_t lane_total = 0;
    for (int32_t i = 0; i < kLaneDigits; ++i) lane_total += totals.of[i];
    uint32_t before = lane_total;
    for (int32_t distance = 1; distance < 32; distance *= 2) {
      const uint32_t others = __shfl_up_sync(~0u, before, distance);
      before += lane_ >= distance ? others : 0u;
    }
    before -= lane_total;
    LaneCounts own = lane_counts(own_);
    for (int32_t i = 0; i < kLaneDigits; ++i) {
      own.of[i] += before;
      before += totals.of[i];
    }
    lane_counts(own_) = own;
    __syncwarp();
  }

  __device__ void move(int32_t shift) const {
    int32_t at = begin_;
#pragma unroll 1
    for (; at + 32 * kRows <= end_; at += 32 * kRows) move_rows<kRows>(at, ~0u, shift);
#pragma unroll 1
    for (; at < end_; at += 32) {
      const int32_t left = end_ - at;
      move_rows<1>(at, left < 32 ? (1u << left) - 1u : ~0u, shift);
    }
  }

  // `active`: the lanes that have words.
  template <int kCount>
  __device__ __forceinline__ void move_rows(int32_t at, uint32_t active, int32_t shift) const {
    Word word[kCount];
    uint32_t same[kCount];  // the lanes whose word has the same digit
    const bool has_word = (active >> lane_ & 1u) != 0;
#pragma unroll
    for (int32_t row = 0; row < kCount; ++row) {
      word[row] = has_word ? words_.from[at + 32 * row + lane_] : Word{0};
    }
#pragma unroll
    for (int32_t row = 0; row < kCount; ++row) {
      const uint32_t key = digit(word[row], shift);
      same[row] = active;
#pragma unroll
      for (int32_t bit = 0; bit < kBits; ++bit) same[row] &= ptx::same_bit(key, 1u << bit);
    }
#pragma unroll
    for (int32_t row = 0; row < kCount; ++row) {
      uint32_t* counter = own_ + digit(word[row], shift);
      const uint32_t position = *counter + __popc(same[row] & ((1u << lane_) - 1u));
      __syncwarp();
      if (same[row] >> lane_ == 1u) *counter = position + 1;  // the last of them
      __syncwarp();
      if (has_word) words_.to[position] = word[row];
    }
  }

  Words words_;
  const int32_t thread_, lane_;
  uint32_t* const totals_;
  uint32_t* const counters_;  // [warps, digits]
  const int32_t warp_;
  uint32_t* const own_;
  int32_t begin_, end_;  // the warp's range of the list
};

}  // namespace sdm
