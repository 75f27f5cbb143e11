// One group's events and records, for the host twin and the device kernel.
#pragma once
#include "kernels/chunk_prepare/chunk_inputs.h"
#include "kernels/common/ordered_math.h"

namespace sdm {

class ChunkPrepare {
 public:
  SDM_HD ChunkPrepare(const ChunkPrepareParams& params, int64_t chunk)
      : params_(params),
        inputs_(params, chunk),
        chunk_(chunk),
        events_(params.events + chunk * inputs_.size()),
        places_(params.places + chunk * inputs_.size()) {}

  SDM_HD const ChunkInputs& inputs() const { return inputs_; }

  SDM_HD void group(const GroupStart& start) const {
    const Group found = sum_logs(start.position);
    if (params_.records != nullptr || params_.updates != nullptr) write_records(start, found);
  }

  SDM_HD void beta_row(int32_t token) const {
    params_.beta_rows[chunk_ * params_.chunk_size + token] = inputs_.beta(token);
  }

 private:
  struct Group {
    int32_t slot;    // kNoSlot: one event of padding
    int32_t end;     // position
    int32_t writes;  // how many of its events
    double total;    // the slot's log sum over the chunk
  };

  // The events from `first` on that share its slot: their log sums.
  SDM_HD Group sum_logs(int32_t first) const {
    Entry here = inputs_.entry(first);
    Group group{inputs_.slot(here), first, 0, 0.0};
    int32_t summed_token = -1;
    bool opens_run = true;
    uint32_t first_flag = kRecordFirst;
    for (bool last = false; !last; ++group.end) {
      const bool writes = !here.is_read && group.slot != kNoSlot;
      if (writes && here.token != summed_token) {
        group.total += token_log(group.end, here, group.slot);
        summed_token = here.token;
      }
      Entry next{};
      last = group.slot == kNoSlot || group.end + 1 == inputs_.size();
      if (!last) {
        next = inputs_.entry(group.end + 1);
        last = inputs_.slot(next) != group.slot;
      }
      const uint32_t word = first_flag | (last ? kRecordLast : 0u) |
                            (here.is_read ? kEventRead : 0u) | entry_bits(here, group.slot);
      events_[group.end] = {group.total, inputs_.weight(here), word};
      places_[inputs_.place(group.end)] = marked_place(group.end, opens_run && group.writes > 0);
      group.writes += here.is_read ? 0 : 1;
      first_flag = 0;
      opens_run = next.token != here.token || next.is_read != here.is_read;
      here = next;
    }
    return group;
  }

  // Pairs are taken from a run's first event, with the writes of the slot before it.
  SDM_HD static int32_t marked_place(int32_t position, bool paired) {
    return paired ? position : ~position;
  }

  // A token that writes a slot twice decays it by both gates before either write.
  SDM_HD double token_log(int32_t position, Entry write, int32_t slot) const {
    const int32_t token = write.token;
    double sum = 0.0;
    for (;;) {
      sum += inputs_.log_decay(write);
      if (++position == inputs_.size()) return sum;
      write = inputs_.entry(position);
      if (write.is_read || write.token != token || inputs_.slot(write) != slot) return sum;
    }
  }

  SDM_HD static uint32_t entry_bits(const Entry& entry, int32_t slot) {
    return static_cast<uint32_t>(entry.token) << 9 | static_cast<uint32_t>(entry.index) |
           (slot == kNoSlot ? kRecordInvalid : 0u);
  }

  SDM_HD static uint32_t record_bits(uint32_t event, int32_t number, int32_t count) {
    const int32_t distance = number < kDistanceSaturated ? number : kDistanceSaturated;
    return (event & ~(kRecordFirst | kRecordLast | kEventRead)) |
           static_cast<uint32_t>(distance) << 18 | (number == 0 ? kRecordFirst : 0u) |
           (number == count - 1 ? kRecordLast : 0u);
  }

  SDM_HD void write_records(const GroupStart& start, const Group& group) const {
    const int32_t reads_before = start.position - start.writes_before;
    const int32_t reads = group.end - start.position - group.writes;
    int32_t write = 0, read = 0;
    for (int32_t position = start.position; position < group.end; ++position) {
      const ChunkEvent event = events_[position];
      if (event_read(event.word)) {
        read_record(event, inputs_.place(position), reads_before + read,
                    record_bits(event.word, read, reads), group.slot);
        ++read;
      } else {
        write_record(event, inputs_.place(position), start.writes_before + write,
                     record_bits(event.word, write, group.writes), group);
        ++write;
      }
    }
    if (params_.records != nullptr && group.writes > 0) count_blocks(start, group);
  }

  SDM_HD void write_record(const ChunkEvent& event, int32_t place, int32_t rank, uint32_t word,
                           const Group& group) const {
    const int32_t token = record_token(word);
    const int64_t row = chunk_ * params_.chunk_size + token;
    const int64_t at = row * params_.num_writes + record_index(word);
    const bool padding = group.slot == kNoSlot;
    const int32_t bank_row = padding ? 0 : group.slot;
    const float total = static_cast<float>(::exp(group.total));
    const float keff = times(event.weight, static_cast<float>(::exp(event.log)));
    const float pd = times(event.weight, static_cast<float>(decay(group.total, event.log)));
    const int64_t sorted = chunk_ * inputs_.shape().writes() + rank;
    if (params_.updates != nullptr) {
      params_.row_weights[chunk_ * inputs_.size() + place] = {bank_row, -keff};
      params_.updates[sorted] = {word, bank_row, pd, total};
    }
    if (params_.records == nullptr) return;
    params_.pd[at] = pd;
    params_.slots[at] = bank_row;
    if (params_.cpe != nullptr) params_.cpe[at] = total;
    const float scale = padding ? 0.0f : times(-inputs_.beta(token), keff);
    params_.records[sorted] = {word, bank_row, scale, total};
  }

  SDM_HD void read_record(const ChunkEvent& event, int32_t place, int32_t rank, uint32_t word,
                          int32_t slot) const {
    const bool padding = slot == kNoSlot;
    const int32_t bank_row = padding ? 0 : slot;
    const float scale = padding ? 0.0f : times(event.weight, static_cast<float>(::exp(event.log)));
    if (params_.updates != nullptr) {
      params_.row_weights[chunk_ * inputs_.size() + place] = {bank_row, scale};
    }
    if (params_.records == nullptr) return;
    params_.read_records[chunk_ * inputs_.shape().reads() + rank] = {word, bank_row, scale, 0.0f};
  }

  // bpre: the groups that start before each block of 32 sorted writes. A group answers for the
  // blocks that start inside or right behind it, the last one for the count of them all.
  SDM_HD void count_blocks(const GroupStart& start, const Group& group) const {
    const int32_t n = inputs_.shape().writes();
    const int32_t blocks = (n + 31) / 32;
    int32_t* bpre = params_.bpre + chunk_ * (blocks + 1);
    const int32_t end = start.writes_before + group.writes;
    const int32_t count = start.ordinal + (group.slot == kNoSlot ? 0 : 1);
    if (start.writes_before == 0) bpre[0] = 0;
    for (int32_t block = start.writes_before / 32 + 1; 32 * block <= end; ++block) {
      bpre[block] = count;
    }
    if (end == n) bpre[blocks] = count;
  }

  const ChunkPrepareParams& params_;
  const ChunkInputs inputs_;
  const int64_t chunk_;
  ChunkEvent* events_;
  int32_t* places_;
};

}  // namespace sdm
