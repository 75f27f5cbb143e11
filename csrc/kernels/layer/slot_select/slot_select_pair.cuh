// slot_select for two factors of moderate width: some lanes of a warp share a row.
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/ptx/ptx.cuh"
#include "kernels/layer/slot_select/lane_sort.cuh"
#include "kernels/layer/slot_select/select_weights.cuh"
#include "kernels/layer/slot_select/slot_select_block.h"

namespace sdm {

// A factor's columns as sortable keys: the rank's bits, then the column. Distinct, and above 0.
template <typename Score>
struct ColumnKeys;

template <>
struct ColumnKeys<uint16_t> {
  using Key = uint32_t;
  static constexpr int kPiece = 8;  // columns of 16 bytes

  static __device__ __forceinline__ Key key(uint16_t score, int column) {
    return rank_bits(bf16_to_float(score)) & 0xffff0000u | static_cast<uint32_t>(column);
  }

  // Two columns at once: NaN as -inf, and the order's bits, in both halves of a word.
  static __device__ __forceinline__ void two(uint32_t word, int column, Key* keys) {
    word = ptx::max_bf16x2(word, 0xff80ff80u);
    const uint32_t negative = (word >> 15 & 0x00010001u) * 0xffffu;
    const uint32_t ordered = word ^ (negative | 0x80008000u);
    keys[0] = (ordered << 16) + static_cast<uint32_t>(column);
    keys[1] = (ordered & 0xffff0000u) + static_cast<uint32_t>(column + 1);
  }
  static __device__ __forceinline__ void piece(const uint16_t* scores, int column, Key* keys) {
    const uint4 words = *reinterpret_cast<const uint4*>(scores + column);
    two(words.x, column, keys), two(words.y, column + 2, keys + 2);
    two(words.z, column + 4, keys + 4), two(words.w, column + 6, keys + 6);
  }
  static __device__ __forceinline__ int column(Key key) { return static_cast<int>(key & 0xffffu); }
  static __device__ __forceinline__ uint32_t rank(Key key) { return key | 0xffffu; }
  static __device__ __forceinline__ float value(Key key) {
    return __uint_as_float(unordered_bits(key & 0xffff0000u) & 0xffff0000u);
  }
};

template <>
struct ColumnKeys<float> {
  using Key = uint64_t;
  static constexpr int kPiece = 4;

  static __device__ __forceinline__ Key key(float score, int column) {
    return uint64_t{rank_bits(score)} << 32 | static_cast<uint32_t>(column);
  }
  static __device__ __forceinline__ void piece(const float* scores, int column, Key* keys) {
    const float4 four = *reinterpret_cast<const float4*>(scores + column);
    keys[0] = key(four.x, column), keys[1] = key(four.y, column + 1);
    keys[2] = key(four.z, column + 2), keys[3] = key(four.w, column + 3);
  }
  static __device__ __forceinline__ int column(Key key) {
    return static_cast<int>(static_cast<uint32_t>(key));
  }
  static __device__ __forceinline__ uint32_t rank(Key key) {
    return static_cast<uint32_t>(key >> 32);
  }
  static __device__ __forceinline__ float value(Key key) {
    return __uint_as_float(unordered_bits(rank(key)));
  }
};

template <typename Score, SelectShape S>
struct SlotSelect {
  using Keys = ColumnKeys<Score>;
  using Key = typename Keys::Key;
  static constexpr int kGroup = S.group();  // lanes of a factor
  static constexpr int kRows = S.rows(), kRowWords = S.row_words();
  static constexpr int kPlaces = S.kept / S.lanes;  // of the selected slots, a lane

  // A row's part of the shared memory.
  struct Row {
    float* values;     // [2][kept]: the factors' best values
    int32_t* columns;  // [2][kept]: their columns as parts of the slot number
    uint32_t* chosen;  // [kept]: the chosen candidates' places in `values`
  };

  static __device__ __forceinline__ Row row_at(int row_of_block) {
    auto* words = reinterpret_cast<float*>(ptx::dynamic_shared()) + row_of_block * kRowWords;
    return {words, reinterpret_cast<int32_t*>(words + 2 * S.kept),
            reinterpret_cast<uint32_t*>(words + 4 * S.kept)};
  }

  // The places in `values` of this lane's candidates, one behind the other in the table.
  static __device__ __forceinline__ void load_positions(const SlotSelectParams& params,
                                                        const SlotSelectSide& side, int row_lane,
                                                        uint32_t (&places)[S.candidates]) {
    const int32_t kept0 = min(side.count, params.widths[0]);
    const int32_t kept1 = min(side.count, params.widths[1]);
#pragma unroll
    for (int i = 0; i < S.candidates; ++i) {
      const int candidate = row_lane * S.candidates + i;
      places[i] = static_cast<uint32_t>(S.kept) << 16;
      if (candidate < side.candidates) {
        const int32_t first = table_position(side, 2, candidate, 0, kept0);
        const int32_t second = table_position(side, 2, candidate, 1, kept1);
        places[i] = static_cast<uint32_t>(first | (S.kept + second) << 16);
      }
    }
  }

  static __device__ __forceinline__ float sum_at(const Row& row, uint32_t places) {
    return plus(row.values[places & 0xffffu], row.values[places >> 16]);
  }

  // The best columns of this lane's factor, to shared memory.
  static __device__ __forceinline__ void rank_factor(const SlotSelectParams& params,
                                                     const Score* scores, bool wide_loads,
                                                     int row_lane, const Row& row) {
    const int factor = row_lane / kGroup, lane = row_lane % kGroup;
    const int32_t width = factor == 0 ? params.widths[0] : params.widths[1];
    scores += factor == 0 ? 0 : params.widths[0];
    Key keys[S.columns];
    if (wide_loads) {
#pragma unroll
      for (int i = 0; i < S.columns; i += Keys::kPiece) {
        const int column = i * kGroup + lane * Keys::kPiece;
        if (column < width) {
          Keys::piece(scores, column, keys + i);
        } else {
#pragma unroll
          for (int c = 0; c < Keys::kPiece; ++c) keys[i + c] = 0;
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < S.columns; ++i) {
        const int column = i * kGroup + lane;
        keys[i] = column < width ? Keys::key(scores[column], column) : 0;
      }
    }
    const auto best = best_keys<S.kept, kGroup>(keys, lane);
    const int place = factor * S.kept + list_place<S.kept, kGroup, S.columns>(lane);
    const int32_t stride = factor == 0 ? params.widths[1] : 1;
    constexpr int kHeld = S.kept / kGroup;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int column = Keys::column(best.at[i]);
      float value = Keys::value(best.at[i]);
      // What ranks as -inf may be a NaN; and no column is behind a key of 0.
      if (Keys::rank(best.at[i]) <= (kLowestRank | 0xffffu) && best.at[i] != 0) {
        value = score_at(scores, params.row_type, column);
      }
      row.values[place + i] = value;
      row.columns[place + i] = column * stride;
    }
  }

  // Lists the best k candidates in `chosen`, in any order.
  static __device__ __forceinline__ void choose(const SlotSelectSide& side, int row_lane,
                                                const uint32_t (&places)[S.candidates],
                                                const Row& row) {
    uint32_t ranks[S.candidates], keys[S.candidates];
    const int first = row_lane * S.candidates;
    const int filled = side.candidates + S.kept - side.count;
#pragma unroll
    for (int i = 0; i < S.candidates; ++i) {
      const uint32_t rank = rank_bits(sum_at(row, places[i]));
      ranks[i] = first + i < side.candidates ? rank : 0;
      // Behind the table, stand-ins for the slots that are not wanted.
      keys[i] = first + i >= side.candidates && first + i < filled ? ~0u : ranks[i];
    }
    const uint32_t threshold = threshold_key<S.kept, S.lanes>(keys, row_lane);

    // How many of the lanes before are above the threshold, and equal: two sums in one.
    uint32_t counts = 0;
#pragma unroll
    for (int i = 0; i < S.candidates; ++i) {
      counts += (ranks[i] > threshold ? 1u : 0u) + (ranks[i] == threshold ? 0x10000u : 0u);
    }
    uint32_t through = counts;
#pragma unroll
    for (int distance = 1; distance < S.lanes; distance *= 2) {
      const uint32_t before = __shfl_up_sync(~0u, through, distance);
      if (row_lane >= distance) through += before;
    }
    const int last = static_cast<int>(threadIdx.x % 32) | (S.lanes - 1);
    const int above = static_cast<int>(__shfl_sync(~0u, through, last) & 0xffffu);
    const int wanted = side.count - above;  // of the equal ones, the first in the table
    int above_before = static_cast<int>((through - counts) & 0xffffu);
    int equal_before = static_cast<int>((through - counts) >> 16);
#pragma unroll
    for (int i = 0; i < S.candidates; ++i) {
      const bool is_above = ranks[i] > threshold, is_equal = ranks[i] == threshold;
      if (is_above || (is_equal && equal_before < wanted)) {
        row.chosen[above_before + min(equal_before, wanted)] = places[i];
      }
      above_before += is_above;
      equal_before += is_equal;
    }
  }

  // Sorts the chosen by slot: this lane's places.
  static __device__ __forceinline__ void order(const SlotSelectSide& side, int row_lane,
                                               const Row& row, int32_t (&slots)[kPlaces],
                                               float (&scores)[kPlaces]) {
    uint32_t keys[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int at = row_lane * kPlaces + i;
      keys[i] = 0;  // behind all slots
      if (at < side.count) {
        const uint32_t places = row.chosen[at];
        const int32_t slot = row.columns[places & 0xffffu] + row.columns[places >> 16];
        keys[i] = ~(static_cast<uint32_t>(slot * S.kept) | static_cast<uint32_t>(at));
      }
    }
    const auto sorted = best_keys<S.kept, S.lanes>(keys, row_lane);
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const uint32_t key = ~sorted.at[i];
      slots[i] = static_cast<int32_t>(key / S.kept);
      scores[i] = 0.0f;
      if (row_lane * kPlaces + i < side.count) scores[i] = sum_at(row, row.chosen[key % S.kept]);
    }
  }

  static __device__ __forceinline__ void run(const SlotSelectParams& params) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int row_lane = lane % S.lanes, place_in_tile = lane / S.lanes;
    const bool query = blockIdx.y == 1 || params.key.scores == nullptr;
    const SlotSelectSide side = query ? params.query : params.key;
    const bool wide_loads = (query ? params.query_wide_loads : params.key_wide_loads) != 0;
    const int32_t rows = static_cast<int32_t>(head_rows(params));
    const int32_t tiles = (rows + kRows - 1) / kRows;
    const int32_t columns = params.widths[0] + params.widths[1];
    const int32_t slots_of_row = params.widths[0] * params.widths[1];
    const Row row = row_at(warp * kRows + place_in_tile);

    uint32_t places[S.candidates];
    load_positions(params, side, row_lane, places);
    pdl_wait();
    pdl_trigger();

    const int32_t stride = static_cast<int32_t>(gridDim.x) * kSelectWarps;
    for (int32_t tile = static_cast<int32_t>(blockIdx.x) * kSelectWarps + warp; tile < tiles;
         tile += stride) {
      // Behind the last row it is done once more, and stored by no one.
      const int32_t number = tile * kRows + place_in_tile;
      const SelectRow at = select_row(params, side, min(number, rows - 1), columns, slots_of_row);
      rank_factor(params, static_cast<const Score*>(side.scores) + at.scores, wide_loads, row_lane,
                  row);
      __syncwarp();
      choose(side, row_lane, places, row);
      __syncwarp();
      int32_t slots[kPlaces];
      float scores[kPlaces];
      order(side, row_lane, row, slots, scores);
      __syncwarp();
      const float norm = lanes_weights<S.lanes>(side, row_lane * kPlaces, scores);
      if (number < rows) {
        store_places(side, at, row_lane * kPlaces, slots, scores);
        if (side.norms != nullptr && row_lane == 0) side.norms[at.out] = norm;
      }
    }
  }
};

}  // namespace sdm
