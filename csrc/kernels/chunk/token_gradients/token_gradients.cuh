// token_gradients on the device: a warp is a token, its lanes hold four columns of every 128.
// An ordinary launch after the chain: it waits for no grid.
#pragma once
#include "kernels/chunk/token_gradients/token_gradients_block.h"
#include "kernels/chunk/token_gradients/token_gradients_math.h"
#include "kernels/common/ptx/ptx.cuh"
#include "kernels/common/rows/typed_values.h"

namespace sdm {

// Four columns from `at` on; returns the lane's sum.
__device__ __forceinline__ float token_columns_wide(const TokenGradientsParams& params,
                                                    int64_t from, int64_t to, float beta,
                                                    float sum) {
  const float4 u = *reinterpret_cast<const float4*>(params.d_u + from);
  const float4 v = *reinterpret_cast<const float4*>(params.innovation + from);
  const float4 out =
      make_float4(times(beta, u.x), times(beta, u.y), times(beta, u.z), times(beta, u.w));
  with_plain_format(params.dv_type, [&](auto format) {
    if constexpr (format.kType == RowType::kFloat32) {
      *reinterpret_cast<float4*>(static_cast<float*>(params.dv) + to) = out;
    } else {
      static_assert(format.kType == RowType::kBFloat16);
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(params.dv) + to) =
          make_uint2(ptx::pack_bf16(out.x, out.y), ptx::pack_bf16(out.z, out.w));
    }
  });
  sum = add_product(u.x, v.x, sum);
  sum = add_product(u.y, v.y, sum);
  sum = add_product(u.z, v.z, sum);
  return add_product(u.w, v.w, sum);
}

__device__ __forceinline__ void token_gradients_device(const TokenGradientsParams& params) {
  const auto lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  const int64_t staged =
      int64_t{blockIdx.x} * (kTokenThreads / kLanes) + static_cast<int32_t>(threadIdx.x) / kLanes;
  if (staged >= int64_t{params.num_chunks} * params.chunk_size) return;
  const UnstagedRows rows = unstaged_rows(params, staged);
  if (!rows.real) return;
  const float beta = params.beta_rows[staged];
  const int64_t from = staged * params.hd, to = rows.dv * params.hd;

  // This lane's columns.
  float sum = 0.0f;
  for (int32_t column = lane * kLaneColumns; column < params.hd; column += kLaneStride) {
    if (params.wide != 0) {
      sum = token_columns_wide(params, from + column, to + column, beta, sum);
      continue;
    }
    const int32_t end = min(column + kLaneColumns, params.hd);
    for (int32_t c = column; c < end; ++c) {
      const float u = params.d_u[from + c];
      store_value(params.dv, params.dv_type, to + c, times(beta, u));
      sum = add_product(u, params.innovation[from + c], sum);
    }
  }

  // The tree, partners at distance 1 first.
  for (int32_t distance = 1; distance < kLanes; distance *= 2) {
    sum = plus(sum, __shfl_xor_sync(~0u, sum, distance));
  }
  if (lane == 0) store_value(params.dbeta, params.dbeta_type, rows.dbeta, sum);
}

}  // namespace sdm
