// merge_readings on the device: a warp takes a slice of a row (a token's head), a lane four columns
// of it; rows of more than eight slices go around. Their first slice stays in registers.
//
// operand      written in the chain by   loaded
// norm_weight  nothing                   before the wait (a warp's first slice)
// norm_bias    nothing                   before the wait (a warp's first slice)
// readings     the step of decoding      after the wait
// gate         the projections           after the wait
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/ptx/ptx.cuh"
#include "kernels/layer/merge_readings/merge_readings_block.h"
#include "kernels/layer/merge_readings/merge_readings_math.h"

namespace sdm {

// Four columns from `at` on, of which `columns` exist; absent operands and columns are 0.
template <bool kWide>
__device__ __forceinline__ MergePiece load_columns(const void* values, RowType type, int64_t at,
                                                   int32_t columns) {
  MergePiece piece = {};
  if (values == nullptr || columns <= 0) return piece;
  if constexpr (kWide) {
    if (type == RowType::kFloat32) {
      const auto four = *reinterpret_cast<const float4*>(static_cast<const float*>(values) + at);
      return {{four.x, four.y, four.z, four.w}};
    }
    const auto bits = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(values) + at);
    return {{bits_to_float(bits.x << 16), bits_to_float(bits.x & 0xffff0000u),
             bits_to_float(bits.y << 16), bits_to_float(bits.y & 0xffff0000u)}};
  } else {
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      if (i < columns) piece.value[i] = load_value(values, type, at + i);
    }
    return piece;
  }
}

template <bool kWide>
__device__ __forceinline__ void store_columns(void* values, RowType type, int64_t at,
                                              int32_t columns, const MergePiece& piece) {
  if (columns <= 0) return;
  const float (&v)[kLaneColumns] = piece.value;
  if constexpr (kWide) {
    if (type == RowType::kFloat32) {
      *reinterpret_cast<float4*>(static_cast<float*>(values) + at) =
          make_float4(v[0], v[1], v[2], v[3]);
    } else {
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(values) + at) =
          make_uint2(ptx::pack_bf16(v[0], v[1]), ptx::pack_bf16(v[2], v[3]));
    }
  } else {
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      if (i < columns) store_value(values, type, at + i, v[i]);
    }
  }
}

// One row, as one of its warps sees it.
template <bool kWide>
struct MergeWarp {
  const MergeReadingsParams& params;
  MergeRow at;
  int32_t slices;
  float* sums;                             // [slices] in shared memory
  MergePiece weight, bias, reading, gate;  // of the warp's first slice

  __device__ __forceinline__ int32_t column(int32_t slice) const {
    return slice * kMergeColumns + static_cast<int32_t>(threadIdx.x) * kLaneColumns;
  }

  __device__ __forceinline__ MergePiece load(const void* values, RowType type, int64_t row,
                                             int32_t slice) const {
    const int32_t first = column(slice);
    return load_columns<kWide>(values, type, row + first, params.hd - first);
  }

  __device__ __forceinline__ MergePiece load_reading(int32_t slice) const {
    MergePiece piece = load(params.readings, params.readings_type, at.reading, slice);
#pragma unroll
    for (float& value : piece.value) value = rounded_to(params.merged_type, value);
    return piece;
  }

  // The row's sum of `of_lane(piece, columns)`.
  template <typename OfLane>
  __device__ __forceinline__ float row_sum(float* parts, const OfLane& of_lane) const {
    const auto warp = static_cast<int32_t>(threadIdx.y), warps = static_cast<int32_t>(blockDim.y);
    for (int32_t slice = warp; slice < slices; slice += warps) {
      float sum = of_lane(slice == warp ? reading : load_reading(slice), params.hd - column(slice));
      for (int32_t distance = 1; distance < kLanes; distance *= 2) {
        sum = plus(sum, __shfl_xor_sync(~0u, sum, distance));
      }
      if (slices == 1) return sum;
      if (threadIdx.x == 0) parts[slice] = sum;
    }
    __syncthreads();
    float sum = parts[0];
    for (int32_t slice = 1; slice < slices; ++slice) sum = plus(sum, parts[slice]);
    return sum;
  }

  __device__ __forceinline__ void store(int32_t slice, float mean, float scale, bool own) const {
    const MergePiece w = own ? weight : load(params.norm_weight, params.norm_type, 0, slice);
    const MergePiece b = own ? bias : load(params.norm_bias, params.norm_type, 0, slice);
    const MergePiece g = own ? gate : load(params.gate, params.gate_type, at.gate, slice);
    MergePiece piece = own ? reading : load_reading(slice);
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      float& value = piece.value[i];
      if (params.norm_weight != nullptr) {
        value = normalized(params, value, mean, scale, w.value[i], b.value[i]);
      }
      if (params.gate != nullptr) value = gated(params, value, g.value[i]);
    }
    const int32_t first = column(slice);
    store_columns<kWide>(params.merged, params.merged_type, at.merged + first, params.hd - first,
                         piece);
  }
};

template <bool kWide>
__device__ __forceinline__ void merge_readings_device(const MergeReadingsParams& params) {
  // Whose. Rows past the last are the last one's again: they reach every barrier and store nothing.
  const int64_t rows = int64_t{params.num_batches} * params.num_tokens * params.num_heads;
  if (rows == 0) return;
  const int64_t own_row = int64_t{blockIdx.x} * blockDim.z + threadIdx.z;
  const int64_t row = own_row < rows ? own_row : rows - 1;
  const auto warp = static_cast<int32_t>(threadIdx.y), warps = static_cast<int32_t>(blockDim.y);
  const int32_t slices = num_slices(params.hd);
  auto* shared = reinterpret_cast<float*>(ptx::dynamic_shared());
  MergeWarp<kWide> one{params, merge_row(params, static_cast<uint32_t>(row)), slices,
                       shared + 2 * threadIdx.z * slices};

  // The norm's weights, which nothing in a chain writes; then what is written.
  one.weight = one.load(params.norm_weight, params.norm_type, 0, warp);
  one.bias = one.load(params.norm_bias, params.norm_type, 0, warp);
  pdl_wait();
  pdl_trigger();
  one.reading = one.load_reading(warp);
  one.gate = one.load(params.gate, params.gate_type, one.at.gate, warp);

  // The norm's two passes.
  float mean = 0.0f, scale = 1.0f;
  if (params.norm_weight != nullptr) {
    const float sum =
        one.row_sum(one.sums, [](const MergePiece& piece, int32_t) { return lane_sum(piece); });
    mean = divided(sum, static_cast<float>(params.hd));
    scale = norm_scale(
        params, one.row_sum(one.sums + slices, [&](const MergePiece& piece, int32_t columns) {
          return lane_squares(piece, columns, mean);
        }));
  }

  // The row.
  if (own_row >= rows) return;
  for (int32_t slice = warp; slice < slices; slice += warps) {
    one.store(slice, mean, scale, slice == warp);
  }
}

}  // namespace sdm
