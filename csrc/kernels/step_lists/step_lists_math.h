// A chunk's part of the lists, for the host twin and the device kernel.
#pragma once
#include "kernels/common/chunk_groups.h"
#include "kernels/common/chunk_shape.h"
#include "kernels/common/ordered_math.h"
#include "kernels/common/typed_values.h"
#include "kernels/step_lists/step_lists_params.h"

namespace sdm {

class StepLists {
 public:
  SDM_HD StepLists(const StepListsParams& params, int64_t chunk)
      : params_(params),
        shape_(shape_of(params)),
        tokens_(chunk_tokens(shape_, chunk)),
        events_(params.events + chunk * shape_.events()),
        chunk_(chunk),
        stream_(static_cast<int32_t>(chunk % params.num_parallel)),
        step_(chunk / params.num_parallel) {
    const int64_t p = params.num_parallel, n = shape_.writes(), m = shape_.reads();
    const int64_t bags = p * shape_.chunk_size * (1 + shape_.num_writes);
    gather_ = step_ * p * (params.fetched != 0 ? n + m : n) + stream_ * n;
    gather_reads_ = gather_ - stream_ * n + p * n + stream_ * m;
    bags_ = step_ * (bags + p * m) + stream_ * (bags / p);
    read_bags_ = step_ * (bags + p * m) + bags + stream_ * m;
    updates_ = (step_ * p + stream_) * n;
    table_group_ = params.group_row + step_ * params.group_stride + stream_ * n;
  }

  // The list that for_each_group walks.
  SDM_HD int32_t size() const { return shape_.events(); }
  SDM_HD EventKind kind(int32_t position) const {
    const uint32_t word = events_[position].word;
    const bool write = !event_read(word);
    return {record_first(word), write, write && opens(position, word)};
  }

  SDM_HD void group(const GroupStart& start) const {
    const int32_t slot = slot_of(events_[start.position].word);
    const double total = total_log(start.position);
    int32_t writes = 0;
    for (int32_t position = start.position;; ++position) {
      const ChunkEvent event = events_[position];
      if (event_read(event.word)) {
        read(event, slot);
      } else {
        write(event, start, writes, slot, total);
        ++writes;
      }
      if (record_last(event.word)) break;
    }
    if (writes == 0 || slot == kNone) return;
    const int64_t head = 2 * updates_ + start.writes_before + start.ordinal;
    params_.gather[gather_ + start.ordinal] = slot;
    params_.update_bags[head] = table_group_ + start.ordinal;
    params_.update_weights[head] = static_cast<float>(::exp(total));
    params_.update_offsets[updates_ + start.ordinal] = in_step(start.writes_before + start.ordinal);
    params_.update_sources[updates_ + start.ordinal] = source(start.ordinal);
  }

  // v enters its token's sum with weight 1.
  SDM_HD void token(int32_t token) const {
    const int64_t at = bags_ + int64_t{token} * (1 + shape_.num_writes);
    params_.bags[at] = params_.v_row + chunk_ * shape_.chunk_size + token;
    params_.bag_weights[at] = 1.0f;
  }

  // Behind the last of `used` groups: ordinals that are none repeat the first group's row, and
  // places of bags that are none hold zeros.
  SDM_HD void unused_group(int32_t ordinal, int32_t used) const {
    params_.gather[gather_ + ordinal] = params_.gather[gather_];
    params_.update_offsets[updates_ + ordinal] = in_step(valid_writes() + used);
    params_.update_sources[updates_ + ordinal] = source(0);
  }
  SDM_HD void unused_place(int32_t place) const {
    params_.update_bags[2 * updates_ + place] = params_.zero_row;
    params_.update_weights[2 * updates_ + place] = 0.0f;
  }
  SDM_HD void count(int32_t used) const { params_.used[chunk_] = used; }

  SDM_HD int32_t tokens() const { return shape_.chunk_size; }
  SDM_HD int32_t writes() const { return shape_.writes(); }
  SDM_HD int32_t valid_writes() const { return tokens_.valid * shape_.num_writes; }

 private:
  static constexpr int32_t kNone = -1;  // padding's slot

  // Whether a write is the first one of its slot.
  SDM_HD bool opens(int32_t position, uint32_t word) const {
    if (record_invalid(word)) return false;
    while (!record_first(word)) {
      word = events_[--position].word;
      if (!event_read(word)) return false;
    }
    return true;
  }

  // The log sum at the group's last write.
  SDM_HD double total_log(int32_t position) const {
    double total = 0.0;
    for (;; ++position) {
      const ChunkEvent event = events_[position];
      if (!event_read(event.word)) total = event.log;
      if (record_last(event.word)) return total;
    }
  }

  SDM_HD int32_t slot_of(uint32_t word) const {
    if (record_invalid(word)) return kNone;
    const int64_t row = tokens_.first_row + record_token(word);
    const int32_t index = record_index(word);
    return event_read(word)
               ? load_index(params_.q_idx, params_.wide_q_idx, row * shape_.num_reads + index)
               : load_index(params_.k_idx, params_.wide_k_idx, row * shape_.num_writes + index);
  }

  SDM_HD void write(const ChunkEvent& event, const GroupStart& start, int32_t number, int32_t slot,
                    double total) const {
    const int32_t token = record_token(event.word);
    const int64_t at =
        bags_ + int64_t{token} * (1 + shape_.num_writes) + 1 + record_index(event.word);
    if (slot == kNone) {
      params_.bags[at] = params_.zero_row;
      params_.bag_weights[at] = 0.0f;
      return;
    }
    params_.bags[at] = table_group_ + start.ordinal;
    params_.bag_weights[at] = -times(event.weight, static_cast<float>(::exp(event.log)));
    const int64_t place = 2 * updates_ + start.writes_before + number + 1 + start.ordinal;
    params_.update_bags[place] = params_.v_row + chunk_ * shape_.chunk_size + token;
    params_.update_weights[place] =
        times(event.weight, static_cast<float>(decay(total, event.log)));
  }

  // A padding read takes some row of its chunk: its weight is 0, and nothing looks at the sum.
  SDM_HD void read(const ChunkEvent& event, int32_t slot) const {
    const int32_t place = record_token(event.word) * shape_.num_reads + record_index(event.word);
    const int64_t row = slot == kNone ? slot_of(events_[0].word) : slot;
    if (params_.fetched != 0) {
      params_.gather[gather_reads_ + place] = row;
      params_.bags[read_bags_ + place] =
          params_.read_row + int64_t{stream_} * shape_.reads() + place;
    } else {
      params_.bags[read_bags_ + place] = row;
    }
    params_.bag_weights[read_bags_ + place] =
        slot == kNone ? 0.0f : times(event.weight, static_cast<float>(::exp(event.log)));
  }

  // Among the places and groups of all streams of the step.
  SDM_HD int64_t in_step(int32_t place) const { return 2 * int64_t{stream_} * writes() + place; }
  SDM_HD int64_t source(int32_t ordinal) const { return int64_t{stream_} * writes() + ordinal; }

  const StepListsParams& params_;
  const ChunkShape shape_;
  const ChunkTokens tokens_;
  const ChunkEvent* events_;
  const int64_t chunk_;
  const int32_t stream_;
  const int64_t step_;
  int64_t gather_, gather_reads_;  // where the chunk's part of each list starts
  int64_t bags_, read_bags_;
  int64_t updates_;
  int64_t table_group_;
};

}  // namespace sdm
