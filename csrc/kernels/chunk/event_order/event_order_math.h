// What a chunk's events are sorted by, for the host twin and the device kernel.
#pragma once
#include "kernels/chunk/event_order/event_order_params.h"
#include "kernels/common/records/chunk_events.h"
#include "kernels/common/records/chunk_shape.h"

namespace sdm {

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

  // Where the slot of the event at `place`, below real(), is given. The division is exact:
  // ChunkInputs::entry. One path: the lanes of a warp have both kinds.
  SDM_HD const int32_t* slot_at(int32_t place) const {
    const auto wide = uint64_t{static_cast<uint32_t>(place)} * token_factor_;
    const auto token = static_cast<int32_t>(wide >> 32);
    const bool is_read = place - token * shape_.per_token() >= shape_.num_writes;
    const int32_t tokens = is_read ? token + 1 : token;
    const int32_t others = is_read ? shape_.num_writes : shape_.num_reads;
    return (is_read ? reads_ : writes_).at(place - tokens * others);
  }

  // What is out of range has the last row's, so that all that follows stays inside the bank.
  SDM_HD uint32_t key(int32_t slot) const {
    const uint32_t key = static_cast<uint32_t>(slot) - first_slot_;
    const auto last = static_cast<uint32_t>(params_.key_rows) - 1;
    return key < last ? key : last;
  }

  // By place among the chunk's writes, or reads.
  SDM_HD uint32_t write_key(int32_t write) const { return key(*writes_.at(write)); }
  SDM_HD uint32_t read_key(int32_t read) const { return key(*reads_.at(read)); }

  // The outputs at a sorted position.
  SDM_HD void store(int32_t position, uint32_t key, int32_t place) const {
    slots_out_[position] = static_cast<int32_t>(first_slot_ + key);
    order_out_[position] = place;
  }
  SDM_HD void store_padding(int32_t position) const {
    slots_out_[position] = kNoSlot;
    order_out_[position] = position;
  }

  // The chunk's part of each output, which may hold other words before they are stored.
  SDM_HD int32_t* slots_out() const { return slots_out_; }
  SDM_HD int32_t* order_out() const { return order_out_; }

 private:
  // Of int32, or of int64 whose low words come first: a bank row fits one.
  struct Indices {
    Indices() = default;
    SDM_HD Indices(const void* indices, int32_t wide, int64_t begin)
        : bytes(wide != 0 ? 8 : 4), first(static_cast<const char*>(indices) + begin * bytes) {}

    SDM_HD const int32_t* at(int32_t index) const {
      return reinterpret_cast<const int32_t*>(first + uint64_t{static_cast<uint32_t>(index)} *
                                                          static_cast<uint32_t>(bytes));
    }

    int32_t bytes;  // of an index
    const char* first;
  };

  const EventOrderParams& params_;
  const ChunkShape shape_;
  int32_t *const slots_out_, *const order_out_;
  const uint32_t first_slot_;
  const uint32_t token_factor_;
  Indices writes_, reads_;  // the chunk's
  int32_t real_;
};

}  // namespace sdm
