// slot_select for any factors: a warp a row, the candidates' ranks in shared memory. A lane holds
// V columns of a factor.
#pragma once
#include "kernels/layer/slot_select/slot_select_pair.cuh"

namespace sdm {

template <int V>
struct SlotSelectAny {
  static constexpr int kTop = kMaxSelected;
  static constexpr int kPlaces = kTop / 32;

  struct Row {
    float* values;     // by factor: the best values,
    int32_t* columns;  // and their columns as parts of the slot number
    uint32_t* ranks;   // [candidates]
    int32_t* chosen;   // [k]: the chosen candidates
  };

  static __device__ __forceinline__ void rank_factor(const SlotSelectParams& params,
                                                     int64_t scores_at, const void* scores,
                                                     int32_t width, int32_t kept, int32_t stride,
                                                     int lane, float* values, int32_t* columns) {
    uint64_t keys[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int column = i * 32 + lane;
      keys[i] = column < width ? ColumnKeys<float>::key(
                                     score_at(scores, params.row_type, scores_at + column), column)
                               : 0;
    }
    const auto best = best_keys<kTop, 32>(keys, lane);
    const int place = list_place<kTop, 32, V>(lane);
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      if (place + i >= kept) continue;
      const int column = ColumnKeys<float>::column(best.at[i]);
      float value = ColumnKeys<float>::value(best.at[i]);
      if (ColumnKeys<float>::rank(best.at[i]) == kLowestRank) {
        value = score_at(scores, params.row_type, scores_at + column);  // may be a NaN
      }
      values[place + i] = value;
      columns[place + i] = column * stride;
    }
  }

  static __device__ __forceinline__ float sum_at(const SlotSelectParams& params,
                                                 const SlotSelectSide& side, int32_t candidate,
                                                 const float* values) {
    float sum = 0.0f;
    for (int32_t f = 0; f < params.num_factors; ++f) {
      const int32_t kept = min(side.count, params.widths[f]);
      const float value = values[table_position(side, params.num_factors, candidate, f, kept)];
      sum = f == 0 ? value : plus(sum, value);
      values += kept;
    }
    return sum;
  }

  static __device__ __forceinline__ int32_t slot_at(const SlotSelectParams& params,
                                                    const SlotSelectSide& side, int32_t candidate,
                                                    const int32_t* columns) {
    int32_t slot = 0;
    for (int32_t f = 0; f < params.num_factors; ++f) {
      const int32_t kept = min(side.count, params.widths[f]);
      slot += columns[table_position(side, params.num_factors, candidate, f, kept)];
      columns += kept;
    }
    return slot;
  }

  // The k-th largest rank, or one below it that k ranks are no smaller than.
  static __device__ __forceinline__ uint32_t threshold(const SlotSelectSide& side, int lane,
                                                       const uint32_t* ranks) {
    uint32_t found = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
      const uint32_t trial = found | bit;
      uint32_t mine = 0;
      for (int32_t c = lane; c < side.candidates; c += 32) mine += ranks[c] >= trial;
      const uint32_t count = __reduce_add_sync(~0u, mine);
      if (count < static_cast<uint32_t>(side.count)) continue;
      found = trial;
      if (count == static_cast<uint32_t>(side.count)) break;
    }
    return found;
  }

  static __device__ __forceinline__ void choose(const SlotSelectSide& side, int lane,
                                                const Row& row) {
    const uint32_t cut = threshold(side, lane, row.ranks);
    uint32_t mine = 0;
    for (int32_t c = lane; c < side.candidates; c += 32) mine += row.ranks[c] > cut;
    const int wanted = side.count - static_cast<int>(__reduce_add_sync(~0u, mine));
    const uint32_t lower = (1u << lane) - 1;
    int above_before = 0, equal_before = 0;
    for (int32_t base = 0; base < side.candidates; base += 32) {
      const int32_t c = base + lane;
      const uint32_t rank = c < side.candidates ? row.ranks[c] : 0;
      const bool is_above = rank > cut, is_equal = rank == cut;
      const uint32_t above = __ballot_sync(~0u, is_above), equal = __ballot_sync(~0u, is_equal);
      const int equals = equal_before + __popc(equal & lower);
      if (is_above || (is_equal && equals < wanted)) {
        row.chosen[above_before + __popc(above & lower) + min(equals, wanted)] = c;
      }
      above_before += __popc(above);
      equal_before += __popc(equal);
    }
  }

  static __device__ __forceinline__ void order(const SlotSelectParams& params,
                                               const SlotSelectSide& side, int lane, const Row& row,
                                               int32_t (&slots)[kPlaces],
                                               float (&scores)[kPlaces]) {
    uint64_t keys[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int at = i * 32 + lane;
      keys[i] = 0;  // behind all slots
      if (at < side.count) {
        const auto slot = static_cast<uint32_t>(slot_at(params, side, row.chosen[at], row.columns));
        keys[i] = ~(uint64_t{slot} << 32 | static_cast<uint32_t>(at));
      }
    }
    const auto sorted = best_keys<kTop, 32>(keys, lane);
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const uint64_t key = ~sorted.at[i];
      slots[i] = static_cast<int32_t>(key >> 32);
      scores[i] = 0.0f;
      if (lane * kPlaces + i < side.count) {
        const int32_t candidate = row.chosen[static_cast<uint32_t>(key)];
        scores[i] = sum_at(params, side, candidate, row.values);
      }
    }
  }

  static __device__ __forceinline__ void run(const SlotSelectParams& params) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int32_t warps = static_cast<int32_t>(blockDim.x) / 32;
    const bool query = blockIdx.y == 1 || params.key.scores == nullptr;
    const SlotSelectSide side = query ? params.query : params.key;
    const int32_t rows = static_cast<int32_t>(head_rows(params));
    const int32_t columns_of_row = row_columns(params), slots_of_row = row_slots(params);
    const WideMap map = wide_map(params);
    char* shared = ptx::dynamic_shared() + warp * map.total;
    const Row row{reinterpret_cast<float*>(shared),
                  reinterpret_cast<int32_t*>(shared + map.columns),
                  reinterpret_cast<uint32_t*>(shared + map.ranks),
                  reinterpret_cast<int32_t*>(shared + map.chosen)};
    pdl_wait();
    pdl_trigger();

    const int32_t stride = static_cast<int32_t>(gridDim.x) * warps;
    for (int32_t number = static_cast<int32_t>(blockIdx.x) * warps + warp; number < rows;
         number += stride) {
      const SelectRow at = select_row(params, side, number, columns_of_row, slots_of_row);
      int64_t scores_at = at.scores;
      int32_t parts = slots_of_row, first = 0;
      for (int32_t f = 0; f < params.num_factors; ++f) {
        const int32_t width = params.widths[f], kept = min(side.count, width);
        parts /= width;
        rank_factor(params, scores_at, side.scores, width, kept, parts, lane, row.values + first,
                    row.columns + first);
        scores_at += width;
        first += kept;
      }
      __syncwarp();
      for (int32_t c = lane; c < side.candidates; c += 32) {
        row.ranks[c] = rank_bits(sum_at(params, side, c, row.values));
      }
      __syncwarp();
      choose(side, lane, row);
      __syncwarp();
      int32_t slots[kPlaces];
      float scores[kPlaces];
      order(params, side, lane, row, slots, scores);
      __syncwarp();
      const float norm = lanes_weights<32>(side, lane * kPlaces, scores);
      store_places(side, at, lane * kPlaces, slots, scores);
      if (side.norms != nullptr && lane == 0) side.norms[at.out] = norm;
    }
  }
};

}  // namespace sdm
