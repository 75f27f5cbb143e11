// How the host twins divide a step's sorted entries: a unit of work is a chunk, a run of column
// slices and a tile of positions, and does the groups whose FIRST lies in the tile. Every output
// and every bank row then has one writer, however many threads there are.
#pragma once
#include "kernels/common/records/records.h"
#include "kernels/common/rows/column_slices.h"

namespace sdm {

struct RecordTile {
  const Record* records;  // the chunk's
  int64_t chunk;
  int64_t first_token;  // the chunk's first row in per-token tensors
  int32_t entries;      // of the chunk
  int32_t begin, end;   // positions
  int32_t first_slice, end_slice;
  int32_t ahead;  // entries between one that is worked on and the one whose rows are prefetched
};

// The entries of one slot in one chunk, or one padding entry. Size 0: the tile is done.
struct RecordGroup {
  const Record* records;
  int64_t first_token;
  int32_t position;
  int32_t size;
};

SDM_HD RecordGroup group_from(const RecordTile& tile, int32_t position) {
  while (position < tile.end && !record_first(tile.records[position].word)) ++position;
  RecordGroup group{tile.records + position, tile.first_token, position, 0};
  if (position >= tile.end) return group;
  const int32_t left = tile.entries - position;
  do {
    ++group.size;
  } while (group.size < left && !record_last(group.records[group.size - 1].word));
  return group;
}

SDM_HD RecordGroup first_group(const RecordTile& tile) { return group_from(tile, tile.begin); }
SDM_HD RecordGroup next_group(const RecordTile& tile, const RecordGroup& group) {
  return group_from(tile, group.position + group.size);
}

// The entry's index in one plane: [chunk, token, w].
SDM_HD int64_t entry_index(const RecordGroup& group, const Record& record, int32_t per_token) {
  return (group.first_token + record_token(record.word)) * per_token + record_index(record.word);
}

// The entry whose rows are to be prefetched at the group's entry e: null when no new row starts.
SDM_HD const Record* record_ahead(const RecordTile& tile, const RecordGroup& group, int32_t e) {
  const int32_t position = group.position + e + tile.ahead;
  if (position >= tile.entries) return nullptr;
  const Record& record = tile.records[position];
  return record_first(record.word) && !record_invalid(record.word) ? &record : nullptr;
}

class RecordTiles {
 public:
  static constexpr int32_t kPositions = 64;
  static constexpr int32_t kSlices = 8;  // of a 128-column slice: 4 KiB of an f32 row

  RecordTiles(const Record* records, int32_t step, int32_t num_parallel, int32_t chunk_size,
              int32_t per_token, int32_t hd)
      : records_(records),
        first_chunk_(int64_t{step} * num_parallel),
        num_chunks_(num_parallel),
        chunk_size_(chunk_size),
        entries_(chunk_size * per_token),
        slices_(num_slices(hd)),
        tiles_((entries_ + kPositions - 1) / kPositions),
        parts_((slices_ + kSlices - 1) / kSlices) {}

  int64_t count() const { return int64_t{num_chunks_} * parts_ * tiles_; }

  RecordTile operator[](int64_t unit) const {
    const int64_t chunk = first_chunk_ + unit / (int64_t{parts_} * tiles_);
    const auto tile = static_cast<int32_t>(unit % tiles_);
    const auto part = static_cast<int32_t>(unit / tiles_ % parts_);
    const int32_t begin = tile * kPositions, slice = part * kSlices;
    return {records_ + chunk * entries_,
            chunk,
            chunk * chunk_size_,
            entries_,
            begin,
            entries_ - begin < kPositions ? entries_ : begin + kPositions,
            slice,
            slices_ - slice < kSlices ? slices_ : slice + kSlices,
            slices_ < kSlices ? kSlices / slices_ : 1};
  }

 private:
  const Record* records_;
  int64_t first_chunk_;
  int32_t num_chunks_, chunk_size_, entries_, slices_, tiles_, parts_;
};

}  // namespace sdm
