// What a chunk's events are sorted by, for the host twin and the device kernel.
#pragma once
#include "kernels/chunk/event_order/event_order_params.h"
#include "kernels/common/records/chunk_events.h"
#include "kernels/common/records/chunk_shape.h"

namespace sdm {

// A slot as the caller gives it: a bank row is all of `low`, and `high` is 0. Any int64 is legal.
struct GivenSlot {
  int32_t low;
  int32_t high;  // 0 of an int32
};

// Where it is given.
struct SlotAddress {
  const int32_t* low;
  bool wide;     // the next word is `high`
  bool is_read;  // in q_idx

  SDM_HD GivenSlot load() const { return {low[0], wide ? low[1] : 0}; }
};

// What is said of a slot outside: never 0. Below, the value, as near as an int32 comes; above, the
// number of its sequence, from 1 on.
SDM_HD int64_t outside_word(int32_t sequence, const SlotAddress& at) {
  const GivenSlot slot = at.load();
  const int32_t sign = at.wide ? slot.high >> 31 : slot.low >> 31;
  const bool fits = !at.wide || (slot.high == sign && (slot.low ^ sign) >= 0);
  const int32_t value = fits ? slot.low : sign ^ 0x7fffffff;
  return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(sequence) + 1} << 32 |
                              static_cast<uint32_t>(value));
}

// A key is a slot's place among its sequence's rows. Padding has none: it is staged last and stays
// there.
class ChunkKeys {
 public:
  SDM_HD ChunkKeys(const EventOrderParams& params, int32_t chunk)
      : params_(params),
        shape_(shape_of(params)),
        slots_out_(params.sorted_slots + int64_t{chunk} * shape_.events()),
        order_out_(params.order + int64_t{chunk} * shape_.events()),
        first_slot_(static_cast<uint32_t>(chunk % params.num_parallel * params.num_slots)),
        token_factor_(0xffffffffu / static_cast<uint32_t>(shape_.per_token()) + 1) {
    const ChunkTokens tokens = chunk_tokens(shape_, chunk);
    writes_ = Indices(params.k_idx, params.wide_k_idx, tokens.first_row() * shape_.num_writes);
    reads_ = Indices(params.q_idx, params.wide_q_idx, tokens.first_row() * shape_.num_reads);
    real_ = tokens.count(shape_.chunk_size) * shape_.per_token();
  }

  SDM_HD const ChunkShape& shape() const { return shape_; }
  SDM_HD int32_t size() const { return shape_.events(); }
  SDM_HD int32_t real() const { return real_; }  // events that are not padding, the first staged
  SDM_HD bool any_wide() const { return (params_.wide_k_idx | params_.wide_q_idx) != 0; }

  // Of the event at `place`, below real(). The division is exact: ChunkInputs::entry. One path: the
  // lanes of a warp have both kinds.
  SDM_HD SlotAddress slot_at(int32_t place) const {
    const auto wide = uint64_t{static_cast<uint32_t>(place)} * token_factor_;
    const auto token = static_cast<int32_t>(wide >> 32);
    const bool is_read = place - token * shape_.per_token() >= shape_.num_writes;
    const int32_t tokens = is_read ? token + 1 : token;
    const int32_t others = is_read ? shape_.num_writes : shape_.num_reads;
    return (is_read ? reads_ : writes_).at(place - tokens * others, is_read);
  }

  // By place among the chunk's writes, or reads.
  SDM_HD SlotAddress write_at(int32_t write) const { return writes_.at(write, false); }
  SDM_HD SlotAddress read_at(int32_t read) const { return reads_.at(read, true); }

  SDM_HD bool outside(const GivenSlot& slot) const {
    return slot.high != 0 || static_cast<uint32_t>(slot.low) - first_slot_ >= key_rows();
  }

  // What is outside has the last row's: a key of its own could take a bit more.
  SDM_HD uint32_t last_key() const { return key_rows() - 1; }
  SDM_HD uint32_t key(const GivenSlot& slot) const {
    const uint32_t key = static_cast<uint32_t>(slot.low) - first_slot_;
    return slot.high == 0 && key < last_key() ? key : last_key();
  }

  // The outputs at a sorted position.
  SDM_HD void store(int32_t position, uint32_t key, int32_t place) const {
    slots_out_[position] = static_cast<int32_t>(first_slot_ + key);
    order_out_[position] = place;
  }
  SDM_HD void store_outside(int32_t position, int32_t place) const {
    slots_out_[position] = kNoSlot;
    order_out_[position] = place;
  }
  SDM_HD void store_padding(int32_t position) const { store_outside(position, position); }

  // The chunk's part of each output, which may hold other words before they are stored.
  SDM_HD int32_t* slots_out() const { return slots_out_; }
  SDM_HD int32_t* order_out() const { return order_out_; }

 private:
  // Of int32, or of int64 whose low words come first.
  struct Indices {
    Indices() = default;
    SDM_HD Indices(const void* indices, int32_t wide, int64_t begin)
        : bytes(wide != 0 ? 8 : 4), first(static_cast<const char*>(indices) + begin * bytes) {}

    SDM_HD SlotAddress at(int32_t index, bool is_read) const {
      const auto* low = reinterpret_cast<const int32_t*>(
          first + uint64_t{static_cast<uint32_t>(index)} * static_cast<uint32_t>(bytes));
      return {low, bytes == 8, is_read};
    }

    int32_t bytes;  // of an index
    const char* first;
  };

  SDM_HD uint32_t key_rows() const { return static_cast<uint32_t>(params_.key_rows); }

  const EventOrderParams& params_;
  const ChunkShape shape_;
  int32_t *const slots_out_, *const order_out_;
  const uint32_t first_slot_;
  const uint32_t token_factor_;
  Indices writes_, reads_;  // the chunk's
  int32_t real_;
};

}  // namespace sdm
