// plane_reduce on the device: a thread adds the planes of four entries (or one, kWide = false).
// It runs once after the chain, as an ordinary launch: it waits for no grid.
#pragma once
#include "kernels/common/math/ordered_math.h"
#include "kernels/rows/plane_reduce/plane_reduce_block.h"
#include "kernels/rows/plane_reduce/plane_reduce_math.h"

namespace sdm {

// The entry's sum, with its factor and its padding.
__device__ __forceinline__ float reduced(const PlaneReduceParams& params, int64_t entry,
                                         float sum) {
  if (plane_entry_is_padding(params, entry)) return 0.0f;
  if (params.factor == nullptr) return sum;
  const float factor = params.factor[entry / params.group];
  return times(params.negate != 0 ? -factor : factor, sum);
}

template <bool kWide>
__device__ __forceinline__ void plane_reduce_device(const PlaneReduceParams& params) {
  constexpr int kEntries = kWide ? 4 : 1;
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kEntries;
  if (first >= params.count) return;
  if constexpr (kWide) {
    float4 sum = *reinterpret_cast<const float4*>(params.planes + first);
    for (int32_t plane = 1; plane < params.num_planes; ++plane) {
      const float4 next =
          *reinterpret_cast<const float4*>(params.planes + plane * params.count + first);
      sum.x = plus(sum.x, next.x), sum.y = plus(sum.y, next.y);
      sum.z = plus(sum.z, next.z), sum.w = plus(sum.w, next.w);
    }
    *reinterpret_cast<float4*>(params.out + first) =
        make_float4(reduced(params, first, sum.x), reduced(params, first + 1, sum.y),
                    reduced(params, first + 2, sum.z), reduced(params, first + 3, sum.w));
  } else {
    float sum = params.planes[first];
    for (int32_t plane = 1; plane < params.num_planes; ++plane) {
      sum = plus(sum, params.planes[plane * params.count + first]);
    }
    params.out[first] = reduced(params, first, sum);
  }
}

}  // namespace sdm
