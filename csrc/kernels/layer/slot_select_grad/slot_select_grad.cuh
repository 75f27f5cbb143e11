// slot_select_grad on a device: a warp takes a tile of rows. Lanes are entries first, then a row
// and a factor each, that add up columns in slot order, and store the dense rows last. An ordinary
// launch: it waits for no grid.
#pragma once
#include "kernels/common/ptx/ptx.cuh"
#include "kernels/common/rows/typed_values.h"
#include "kernels/layer/slot_select_grad/slot_select_grad_block.h"
#include "kernels/layer/slot_select_grad/slot_select_grad_math.h"

namespace sdm {

class SlotGradTile {
 public:
  __device__ __forceinline__ SlotGradTile(const SlotSelectGradParams& params,
                                          const SlotGradSide& side, const SlotGradMap& map,
                                          char* shared)
      : params_(params),
        side_(side),
        map_(map),
        dense_(reinterpret_cast<float*>(shared)),
        gradients_(reinterpret_cast<float*>(shared + map.gradients)),
        entries_(reinterpret_cast<int32_t*>(shared + map.entries)),
        slots_of_row_(row_slots(params)),
        lane_(static_cast<int32_t>(threadIdx.x) % 32) {}

  // Rows first .. first + rows - 1.
  __device__ __forceinline__ void run(int32_t first, int32_t rows) {
    for (int32_t i = lane_; i < map_.rows * params_.num_columns; i += 32) dense_[i] = 0.0f;
    const int32_t places = tree_places(side_.count);
    if (places == 32) {
      take_entries<1, 4>(first, rows);
    } else if (places == 64) {
      take_entries<2, 2>(first, rows);
    } else if (places == 128) {
      take_entries<4, 1>(first, rows);
    } else {
      take_entries<8, 1>(first, rows);
    }
    __syncwarp();
    add_columns(rows);
    __syncwarp();
    store(first, rows);
    __syncwarp();
  }

 private:
  // E entries of a row.
  template <int E>
  struct Entries {
    float d_weights[E], weights[E];
    int32_t slots[E];
    float norm;
    int32_t first_slot;
  };

  template <int E>
  __device__ __forceinline__ void load(int32_t row, Entries<E>& entries) {
    const HeadRow at = head_row(params_, row);
    const int64_t out = int64_t{at.sequence} * params_.num_tokens + at.token;
    entries.first_slot = at.sequence * slots_of_row_;
    entries.norm = side_.norms != nullptr ? side_.norms[out] : 0.0f;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const int32_t i = lane_ * E + e;
      const int64_t from = out * side_.count + i;
      const bool there = i < side_.count;
      entries.d_weights[e] = there ? side_.d_weights[from] : 0.0f;
      entries.weights[e] = there && side_.weights != nullptr ? side_.weights[from] : 0.0f;
      entries.slots[e] = there ? side_.slots[from] : 0;
    }
  }

  // To the tile's row: the scores' gradients, and with two factors the places of both columns in
  // the dense row, otherwise the slot.
  template <int E>
  __device__ __forceinline__ void put(int32_t row_of_tile, const Entries<E>& entries) {
    float dot = 0.0f;
    if (side_.activation != SlotActivation::kNone) {
      float terms[E];
#pragma unroll
      for (int e = 0; e < E; ++e) {
        const bool there = lane_ * E + e < side_.count;
        terms[e] = there ? weight_product(entries.d_weights[e], entries.weights[e]) : 0.0f;
      }
#pragma unroll
      for (int count = E / 2; count > 0; count /= 2) {
#pragma unroll
        for (int i = 0; i < count; ++i) terms[i] = plus(terms[2 * i], terms[2 * i + 1]);
      }
      dot = terms[0];
#pragma unroll
      for (int bit = 1; bit < 32; bit *= 2) dot = plus(dot, __shfl_xor_sync(~0u, dot, bit));
    }
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const int32_t i = lane_ * E + e;
      if (i >= side_.count) continue;
      const RowSlot entry = row_slot(entries.slots[e], entries.first_slot, slots_of_row_);
      const float gradient = score_gradient(side_.activation, side_.scale, entries.d_weights[e],
                                            entries.weights[e], dot, entries.norm);
      int32_t columns = entry.slot;
      if (params_.num_factors == 2) {
        const int32_t first = divided_by(entry.slot, params_.by_parts[0]);
        const int32_t second = entry.slot - first * params_.widths[1];
        columns = first | (params_.widths[0] + second) << 16;
      }
      gradients_[row_of_tile * map_.entry_places + i] = entry.counts ? gradient : 0.0f;
      entries_[row_of_tile * map_.entry_places + i] = columns;
    }
  }

  // kAtOnce rows' loads are on their way together.
  template <int E, int kAtOnce>
  __device__ __forceinline__ void take_entries(int32_t first, int32_t rows) {
    for (int32_t r = 0; r < rows; r += kAtOnce) {
      Entries<E> entries[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) load(first + min(r + n, rows - 1), entries[n]);
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) put(min(r + n, rows - 1), entries[n]);
    }
  }

  // A lane is a row and a factor: it alone adds to these columns.
  __device__ __forceinline__ void add_columns(int32_t rows) {
    for (int32_t unit = lane_; unit < rows * params_.num_factors; unit += 32) {
      const int32_t r = unit / params_.num_factors, factor = unit - r * params_.num_factors;
      const float* gradients = gradients_ + r * map_.entry_places;
      const int32_t* entries = entries_ + r * map_.entry_places;
      float* dense = dense_ + r * params_.num_columns;
      if (params_.num_factors == 2) {
        const int32_t shift = 16 * factor;
        int32_t entry = entries[0];
        float gradient = gradients[0];
        for (int32_t i = 0; i < side_.count; ++i) {
          float& sum = dense[entry >> shift & 0xffff];
          const float added = plus(sum, gradient);
          // The next entry's loads go ahead of this one's store.
          if (i + 1 < side_.count) entry = entries[i + 1], gradient = gradients[i + 1];
          sum = added;
        }
      } else {
        for (int32_t f = 0; f < factor; ++f) dense += params_.widths[f];
        for (int32_t i = 0; i < side_.count; ++i) {
          float& sum = dense[slot_column(params_, entries[i], factor)];
          sum = plus(sum, gradients[i]);
        }
      }
    }
  }

  // The tile's rows are one behind the other.
  __device__ __forceinline__ void store(int32_t first, int32_t rows) {
    const int64_t to = int64_t{first} * params_.num_columns;
    const int32_t values = rows * params_.num_columns;
    if (side_.wide_stores == 0) {
      for (int32_t i = lane_; i < values; i += 32) {
        store_value(side_.d_scores, params_.row_type, to + i, dense_[i]);
      }
    } else if (params_.row_type == RowType::kFloat32) {
      float* out = static_cast<float*>(side_.d_scores) + to;
      for (int32_t i = 4 * lane_; i < values; i += 128) {
        *reinterpret_cast<float4*>(out + i) = *reinterpret_cast<const float4*>(dense_ + i);
      }
    } else {
      uint16_t* out = static_cast<uint16_t*>(side_.d_scores) + to;
      for (int32_t i = 8 * lane_; i < values; i += 256) {
        const float4 a = *reinterpret_cast<const float4*>(dense_ + i);
        const float4 b = *reinterpret_cast<const float4*>(dense_ + i + 4);
        *reinterpret_cast<uint4*>(out + i) =
            make_uint4(ptx::pack_bf16(a.x, a.y), ptx::pack_bf16(a.z, a.w), ptx::pack_bf16(b.x, b.y),
                       ptx::pack_bf16(b.z, b.w));
      }
    }
  }

  const SlotSelectGradParams& params_;
  const SlotGradSide& side_;
  const SlotGradMap& map_;
  float* dense_;
  float* gradients_;
  int32_t* entries_;
  const int32_t slots_of_row_;
  const int32_t lane_;
};

__device__ __forceinline__ void slot_select_grad_device(const SlotSelectGradParams& params) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t warps = static_cast<int32_t>(blockDim.x) / 32;
  const bool query = blockIdx.y == 1 || params.key.d_scores == nullptr;
  const SlotGradSide side = query ? params.query : params.key;
  const SlotGradMap map = slot_grad_map(params);
  const auto rows = static_cast<int32_t>(head_rows(params));
  SlotGradTile tile(params, side, map, ptx::dynamic_shared() + warp * map.total);
  const int32_t tiles = (rows + map.rows - 1) / map.rows;
  const int32_t stride = static_cast<int32_t>(gridDim.x) * warps;
  for (int32_t t = static_cast<int32_t>(blockIdx.x) * warps + warp; t < tiles; t += stride) {
    const int32_t first = t * map.rows;
    tile.run(first, min(map.rows, rows - first));
  }
}

}  // namespace sdm
