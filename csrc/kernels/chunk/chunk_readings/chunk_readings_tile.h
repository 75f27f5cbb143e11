// How chunk_readings' device code is cut up, as its kernel and its host geometry both need it.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

// A block makes a band of rows in a tile of columns; a thread 8 rows, which lie 8 apart so that all
// threads have equally long chains, of 4 columns.
inline constexpr int32_t kReadingBand = 64;
inline constexpr int32_t kReadingGroups = 8;  // threads that share columns: the rows' remainders
inline constexpr int32_t kReadingRows = kReadingBand / kReadingGroups;
inline constexpr int32_t kReadingColumns = 4;

// Columns of a tile, and how many of its blocks share an SM: as many as leave a thread the
// registers that it needs.
struct ReadingTile {
  int32_t width, blocks;
  SDM_HD constexpr int32_t threads() const { return width / kReadingColumns * kReadingGroups; }
};
inline constexpr ReadingTile kReadingWide{64, 5};
inline constexpr ReadingTile kReadingNarrow{32, 8};  // for narrow rows, and where blocks are few

// Shared memory: a square of qk, padded so that rows beside each other have other banks, and the
// deltas of its columns.
inline constexpr int32_t kReadingQkStride = kReadingBand + 4;
inline constexpr int32_t kReadingQkFloats = kReadingBand * kReadingQkStride;
SDM_HD constexpr int32_t reading_shared_floats(int32_t width) {
  return kReadingQkFloats + kReadingBand * width;
}

// The grid: x = bands of a chunk and tiles, y and z = chunks. What shares qk, and then what shares
// deltas, is side by side; the band with the most work comes first.
SDM_HD uint32_t reading_bands(int32_t chunk_size) {
  return (static_cast<uint32_t>(chunk_size) + kReadingBand - 1) / kReadingBand;
}
SDM_HD uint32_t reading_tiles(int32_t hd, const ReadingTile& tile) {
  return (static_cast<uint32_t>(hd) + tile.width - 1) / tile.width;
}

struct ReadingPlace {
  int32_t band, column;  // of the chunk; the tile's first
};

// Without a division: bands are few.
SDM_HD ReadingPlace reading_place(uint32_t x, int32_t chunk_size, int32_t hd,
                                  const ReadingTile& tile) {
  const uint32_t tiles = reading_tiles(hd, tile);
  auto band = static_cast<int32_t>(reading_bands(chunk_size)) - 1;
  SDM_ROLLED for (; x >= tiles; x -= tiles)-- band;
  return {band, static_cast<int32_t>(x) * tile.width};
}

}  // namespace sdm
