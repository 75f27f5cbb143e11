// slot_select's blocks and shared memory, as its kernels and its host geometry both need them.
#pragma once
#include "kernels/layer/slot_select/slot_select_params.h"

namespace sdm {

inline constexpr int32_t kSelectThreads = 128;
inline constexpr int32_t kSelectWarps = kSelectThreads / 32;

// Two factors: how many lanes share a row, half of them a factor, and what each of them holds.
struct SelectShape {
  int32_t lanes;       // of a row
  int32_t columns;     // of a factor, a lane
  int32_t kept;        // of a factor's columns, and selected slots at most
  int32_t candidates;  // a lane

  constexpr int32_t group() const { return lanes / 2; }
  constexpr int32_t rows() const { return 32 / lanes; }  // a warp
  constexpr int32_t most_width() const { return columns * group(); }
  constexpr int32_t most_candidates() const { return candidates * lanes; }
  // Words of shared memory a row: values and columns of both factors, and the chosen. The padding
  // puts the rows of a warp into different banks.
  constexpr int32_t row_words() const { return 5 * kept + (32 - 5 * kept % 32 + lanes) % 32; }
  constexpr uint32_t shared_bytes() const {
    return static_cast<uint32_t>(4 * kSelectWarps * rows() * row_words());
  }
};

inline constexpr SelectShape kSelect16{8, 16, 16, 8};
inline constexpr SelectShape kSelect32{16, 16, 32, 8};
inline constexpr SelectShape kSelect64{32, 16, 64, 16};

// Any factors: a warp a row. Bytes of its part of the shared memory, in this order: the kept
// columns' values and their parts of the slot number, the candidates' ranks, the chosen.
struct WideMap {
  int32_t kept;     // of all factors
  int32_t columns;  // bytes to each part
  int32_t ranks;
  int32_t chosen;
  int32_t total;
};

SDM_HD WideMap wide_map(const SlotSelectParams& params) {
  const int32_t count =
      params.key.count > params.query.count ? params.key.count : params.query.count;
  const int32_t candidates = params.key.candidates > params.query.candidates
                                 ? params.key.candidates
                                 : params.query.candidates;
  WideMap map{};
  for (int32_t f = 0; f < params.num_factors; ++f) {
    map.kept += params.widths[f] < count ? params.widths[f] : count;
  }
  map.columns = 4 * map.kept;
  map.ranks = 8 * map.kept;
  map.chosen = map.ranks + 4 * candidates;
  map.total = (map.chosen + 4 * count + 15) / 16 * 16;
  return map;
}

// What a warp may take, and a block: any device that the kernels are compiled for has so much.
inline constexpr int32_t kWideWarpBytes = 96 * 1024;
inline constexpr int32_t kWideMostWarps = 8;
inline constexpr int32_t kWideBlockBytes = 48 * 1024;

// Candidates that the device code takes; with more, the way without kernels remains.
inline constexpr int32_t kMaxCandidates =
    (kWideWarpBytes - 8 * kMaxFactors * kMaxSelected - 4 * kMaxSelected - 16) / 4;

}  // namespace sdm
