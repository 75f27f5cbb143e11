// What one event stores, for the host twin and the device kernel.
#pragma once
#include "kernels/chunk/chunk_prepare/chunk_inputs.h"
#include "kernels/common/math/ordered_math.h"

namespace sdm {

// Writes of sorted positions, and groups with a write: what precedes a position, or lies in a
// range. A group counts where it starts.
struct GroupCounts {
  int32_t writes, groups;
};

// Where an event stands among the chunk's sorted writes (or reads) and among those of its group.
struct RecordRank {
  int32_t sorted, number, count;
};

// Of a slot: from the chunk's start through an event, from there to the chunk's end, and all of it.
struct SlotDecays {
  float begun, rest, total;
};

class ChunkPrepare {
 public:
  SDM_HD ChunkPrepare(const ChunkPrepareParams& params, int64_t chunk)
      : params_(params),
        inputs_(params, chunk),
        chunk_(chunk),
        events_(params.events + chunk * inputs_.size()),
        places_(params.places + chunk * inputs_.size()) {}

  SDM_HD const ChunkInputs& inputs() const { return inputs_; }
  SDM_HD bool has_records() const {
    return params_.records != nullptr || params_.updates != nullptr;
  }
  // bpre's.
  SDM_HD bool counts_groups() const { return params_.records != nullptr; }

  SDM_HD void beta_row(int32_t token) const {
    params_.beta_rows[chunk_ * params_.chunk_size + token] = inputs_.beta(token);
  }

  SDM_HD const ChunkEvent& event(int32_t position) const { return events_[position]; }

  // An event's word: first and last of its group.
  SDM_HD static uint32_t event_word(const Entry& entry, int32_t slot, bool first, bool last) {
    return (first ? kRecordFirst : 0u) | (last ? kRecordLast : 0u) |
           (entry.is_read ? kEventRead : 0u) | static_cast<uint32_t>(entry.token) << 9 |
           static_cast<uint32_t>(entry.index) | (slot == kNoSlot ? kRecordInvalid : 0u);
  }

  // `paired`: the first of its run, with a write of the slot before it. Pairs are taken from there.
  SDM_HD void store_event(int32_t position, int32_t place, const ChunkEvent& event,
                          bool paired) const {
    events_[position] = event;
    places_[place] = paired ? position : ~position;
  }

  // Both kinds in one path, as far as they go: the lanes of a warp have both.
  SDM_HD void store_record(const ChunkEvent& event, int32_t place, int32_t slot,
                           const RecordRank& rank, const SlotDecays& decays) const {
    const bool is_read = event_read(event.word), none = slot == kNoSlot;
    const int32_t bank_row = none ? 0 : slot;
    const uint32_t word = record_word(event.word, rank);
    const float eff = times(event.weight, decays.begun);
    const int64_t writes = inputs_.shape().writes();
    // A row of -1 is one of zeros, and times -0 it leaves every sum as it is.
    if (params_.updates != nullptr) {
      params_.row_weights[chunk_ * inputs_.size() + place] = {slot, is_read && !none ? eff : -eff};
    }
    if (is_read) {
      if (params_.records == nullptr) return;
      params_.read_records[chunk_ * inputs_.shape().reads() + rank.sorted] = {word, bank_row, eff,
                                                                              0.0f};
      return;
    }
    const float pd = times(event.weight, decays.rest);
    const int64_t sorted = chunk_ * writes + rank.sorted;
    if (params_.updates != nullptr) params_.updates[sorted] = {word, bank_row, pd, decays.total};
    if (params_.records == nullptr) return;
    const int32_t token = record_token(word);
    const int64_t at = chunk_ * writes + (token * params_.num_writes + record_index(word));
    params_.pd[at] = none ? -0.0f : pd;
    params_.slots[at] = slot;
    if (params_.cpe != nullptr) params_.cpe[at] = decays.total;
    const float scale = none ? 0.0f : times(-inputs_.beta(token), eff);
    params_.records[sorted] = {word, bank_row, scale, decays.total};
  }

  // bpre: the groups that start before each block of 32 sorted writes. A group answers for the
  // blocks that start inside or right behind it, the last one for the count of them all.
  SDM_HD void count_blocks(const GroupCounts& before, int32_t writes, int32_t slot) const {
    if (params_.records == nullptr || writes == 0) return;
    const int32_t n = inputs_.shape().writes();
    const int32_t blocks = (n + 31) / 32;
    int32_t* bpre = params_.bpre + chunk_ * (blocks + 1);
    const int32_t end = before.writes + writes;
    const int32_t count = before.groups + (slot == kNoSlot ? 0 : 1);
    if (before.writes == 0) bpre[0] = 0;
    for (int32_t block = before.writes / 32 + 1; 32 * block <= end; ++block) bpre[block] = count;
    if (end == n) bpre[blocks] = count;
  }

 private:
  SDM_HD static uint32_t record_word(uint32_t event, const RecordRank& rank) {
    const int32_t distance = rank.number < kDistanceSaturated ? rank.number : kDistanceSaturated;
    return (event & ~(kRecordFirst | kRecordLast | kEventRead)) |
           static_cast<uint32_t>(distance) << 18 | (rank.number == 0 ? kRecordFirst : 0u) |
           (rank.number == rank.count - 1 ? kRecordLast : 0u);
  }

  const ChunkPrepareParams& params_;
  const ChunkInputs inputs_;
  const int64_t chunk_;
  ChunkEvent* events_;
  int32_t* places_;
};

}  // namespace sdm
