// slot_select_grad's tiles and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/layer/slot_select_grad/slot_select_grad_params.h"

namespace sdm {

inline constexpr int32_t kSlotGradThreads = 128;
inline constexpr int32_t kSlotGradWarps = kSlotGradThreads / 32;

// A warp's tile of rows, in bytes of shared memory: the dense rows, then the entries' gradients and
// their columns. An entry row has one place more than entries: rows start in different banks.
struct SlotGradMap {
  int32_t rows;
  int32_t entry_places;
  int32_t gradients;  // bytes to each part
  int32_t entries;
  int32_t total;
};

inline constexpr int32_t kSlotGradTileBytes = 12 * 1024;
inline constexpr int32_t kSlotGradBlockBytes = 48 * 1024;

SDM_HD SlotGradMap slot_grad_map(const SlotSelectGradParams& params) {
  const int32_t count =
      params.key.count > params.query.count ? params.key.count : params.query.count;
  SlotGradMap map{};
  map.entry_places = count | 1;
  const int32_t row_bytes = 4 * params.num_columns + 8 * map.entry_places;
  map.rows = 1;
  while (2 * map.rows * params.num_factors <= 32 &&
         2 * map.rows * row_bytes <= kSlotGradTileBytes) {
    map.rows *= 2;
  }
  map.gradients = 4 * map.rows * params.num_columns;
  map.entries = map.gradients + 4 * map.rows * map.entry_places;
  map.total = (map.entries + 4 * map.rows * map.entry_places + 15) / 16 * 16;
  return map;
}

}  // namespace sdm
