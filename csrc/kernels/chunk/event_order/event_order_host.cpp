#include <array>
#include <utility>
#include <vector>

#include "kernels/chunk/event_order/event_order.h"
#include "kernels/chunk/event_order/event_order_math.h"
#include "kernels/common/host/host_parallel.h"

namespace sdm {
namespace {

// Digits of the key, the lowest first. Their counters stay in the first cache.
constexpr int32_t kDigitBits = 11;
constexpr int32_t kMostPasses = (31 + kDigitBits - 1) / kDigitBits;

class ChunkSort {
 public:
  explicit ChunkSort(const EventOrderParams& params)
      : params_(params),
        passes_((params.key_bits + kDigitBits - 1) / kDigitBits),
        bits_(passes_ == 0 ? 0 : (params.key_bits + passes_ - 1) / passes_),
        from_(static_cast<size_t>(shape_of(params).events())),
        to_(from_.size()) {}

  void run(int32_t chunk) {
    const ChunkKeys keys(params_, chunk);
    load(keys);
    for (int32_t pass = 0; pass < passes_; ++pass) move(inside_, pass);
    for (int32_t at = 0; at < inside_; ++at) {
      const uint64_t word = from_[static_cast<size_t>(at)];
      keys.store(at, static_cast<uint32_t>(word >> 32), static_cast<int32_t>(word));
    }
    int32_t position = inside_;
    for (const int32_t place : outside_) keys.store_outside(position++, place);
    if (params_.outside != nullptr) tell(keys, chunk % params_.num_parallel);
    for (int32_t at = keys.real(); at < keys.size(); ++at) keys.store_padding(at);
  }

 private:
  size_t digit(uint32_t key, int32_t pass) const {
    return (key >> (pass * bits_)) & ((1u << bits_) - 1);
  }

  // The list as it is staged, words of key and place, and the digits of all passes.
  void load(const ChunkKeys& keys) {
    for (int32_t pass = 0; pass < passes_; ++pass) {
      std::fill_n(counts_[static_cast<size_t>(pass)].begin(), size_t{1} << bits_, 0u);
    }
    const int32_t writes = keys.shape().num_writes, reads = keys.shape().num_reads;
    const int32_t tokens = keys.real() / (writes + reads);
    int32_t place = 0;
    inside_ = 0;
    outside_.clear();
    for (int32_t token = 0; token < tokens; ++token) {
      for (int32_t w = 0; w < writes; ++w) put(keys, place++, keys.write_at(token * writes + w));
      for (int32_t r = 0; r < reads; ++r) put(keys, place++, keys.read_at(token * reads + r));
    }
  }

  void put(const ChunkKeys& keys, int32_t place, const SlotAddress& at) {
    const GivenSlot slot = at.load();
    if (keys.outside(slot)) return outside_.push_back(place);
    const uint32_t key = keys.key(slot);
    from_[static_cast<size_t>(inside_++)] = uint64_t{key} << 32 | static_cast<uint32_t>(place);
    for (int32_t pass = 0; pass < passes_; ++pass) {
      ++counts_[static_cast<size_t>(pass)][digit(key, pass)];
    }
  }

  void move(int32_t count, int32_t pass) {
    auto& next = counts_[static_cast<size_t>(pass)];
    uint32_t before = 0;
    for (size_t digit = 0; digit < size_t{1} << bits_; ++digit) {
      const uint32_t here = next[digit];
      next[digit] = before;
      before += here;
    }
    for (int32_t at = 0; at < count; ++at) {
      const uint64_t word = from_[static_cast<size_t>(at)];
      to_[next[digit(static_cast<uint32_t>(word >> 32), pass)]++] = word;
    }
    from_.swap(to_);
  }

  // Of the first write and the first read outside.
  void tell(const ChunkKeys& keys, int32_t sequence) const {
    bool told[2] = {false, false};
    for (const int32_t place : outside_) {
      const SlotAddress slot = keys.slot_at(place);
      if (std::exchange(told[slot.is_read ? 1 : 0], true)) continue;
      int64_t& to = params_.outside[slot.is_read ? 1 : 0];
      const int64_t word = outside_word(sequence, slot);
#pragma omp atomic write
      to = word;
    }
  }

  const EventOrderParams& params_;
  const int32_t passes_, bits_;
  std::array<std::array<uint32_t, 1 << kDigitBits>, kMostPasses> counts_;
  std::vector<uint64_t> from_, to_;
  int32_t inside_ = 0;            // words in the list
  std::vector<int32_t> outside_;  // places of the other events
};

}  // namespace

void event_order_host(const EventOrderParams& params) {
  const int64_t events = int64_t{params.num_chunks} * shape_of(params).events();
#pragma omp parallel if (events >= kSerialElements)
  {
    ChunkSort sort(params);
#pragma omp for schedule(static)
    for (int32_t n = 0; n < params.num_chunks; ++n) sort.run(n);
  }
}

}  // namespace sdm
