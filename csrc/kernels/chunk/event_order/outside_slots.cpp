#include "kernels/chunk/event_order/outside_slots.h"

#include <algorithm>
#include <type_traits>

#include "kernels/common/host/host_parallel.h"

namespace sdm {
namespace {

constexpr int64_t kTile = 512;  // tokens that a thread takes at once

template <typename Index>
class Slots {
 public:
  Slots(const TensorRef& indices, int64_t num_slots, int64_t bank_rows)
      : first_(static_cast<const Index*>(indices.data)),
        sequences_(indices.shape[0]),
        tokens_(indices.shape[1]),
        width_(indices.shape[2]),
        sequence_step_(indices.strides[0]),
        token_step_(indices.strides[1]),
        entry_step_(indices.strides[2]),
        num_slots_(num_slots),
        rows_(num_slots == 0 ? bank_rows : num_slots) {}

  std::optional<OutsideSlot> find() const {
    if (!any()) return {};
    for (int64_t p = 0; p < sequences_; ++p) {
      for (int64_t t = 0; t < tokens_; ++t) {
        for (int64_t n = 0; n < width_; ++n) {
          const Index value = at(p, t)[n * entry_step_];
          if (signs(value, p) < 0) return OutsideSlot{p, value};
        }
      }
    }
    return {};
  }

 private:
  using Unsigned = std::make_unsigned_t<Index>;

  const Index* at(int64_t sequence, int64_t token) const {
    return first_ + sequence * sequence_step_ + token * token_step_;
  }

  // Negative if the slot is outside: below the first row, or beyond the last one. Differences wrap:
  // the rows end below 2^31, so that what is far below them comes out far above. No comparison: it
  // has no vector of 64 bits in the oldest instruction set.
  Index signs(Index slot, int64_t sequence) const {
    const auto from_first =
        static_cast<Unsigned>(slot) - static_cast<Unsigned>(sequence * num_slots_);
    const auto to_last = static_cast<Unsigned>(rows_ - 1) - from_first;
    return static_cast<Index>(from_first | to_last);
  }

  bool any() const {
    const int64_t tiles = (tokens_ + kTile - 1) / kTile;
    Index found = 0;
#pragma omp parallel for schedule(static) \
    reduction(| : found) if (sequences_ * tokens_ * width_ >= kSerialElements)
    for (int64_t i = 0; i < sequences_ * tiles; ++i) {
      const int64_t p = i / tiles, t = i % tiles * kTile;
      found |= tile(p, t, std::min(tokens_ - t, kTile));
    }
    return found < 0;
  }

  // Of `count` tokens from `token` on.
  Index tile(int64_t sequence, int64_t token, int64_t count) const {
    const Index* from = at(sequence, token);
    Index found = 0;
    if (entry_step_ == 1 && token_step_ == width_)
      return side_by_side(from, count * width_, sequence);
    for (int64_t t = 0; t < count; ++t, from += token_step_) {
      if (entry_step_ == 1) {
        found |= side_by_side(from, width_, sequence);
        continue;
      }
      for (int64_t n = 0; n < width_; ++n) found |= signs(from[n * entry_step_], sequence);
    }
    return found;
  }

  Index side_by_side(const Index* from, int64_t count, int64_t sequence) const {
    Index found = 0;
    for (int64_t i = 0; i < count; ++i) found |= signs(from[i], sequence);
    return found;
  }

  const Index* first_;
  int64_t sequences_, tokens_, width_;
  int64_t sequence_step_, token_step_, entry_step_;  // in elements
  int64_t num_slots_, rows_;
};

}  // namespace

std::optional<OutsideSlot> find_outside_slot(const TensorRef& indices, int64_t num_slots,
                                             int64_t bank_rows) {
  if (indices.dtype == Dtype::kInt64) return Slots<int64_t>(indices, num_slots, bank_rows).find();
  return Slots<int32_t>(indices, num_slots, bank_rows).find();
}

}  // namespace sdm
