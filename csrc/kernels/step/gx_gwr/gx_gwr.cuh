// gx_gwr on the device: one warp per token and column slice walks the token's writes in order, the
// rows gathered ahead through a ring of asynchronous copies (DESIGN.md).
//
// operand   written in the chain by   loaded
// slots     nothing                   before the wait
// pd        nothing                   before the wait
// delta     nothing                   before the wait
// grad      gx_pa2, gx_gds            after the wait, L2, ring
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/records/chunk_tokens.h"
#include "kernels/common/rows/row_copies.cuh"
#include "kernels/step/gx_gwr/gx_gwr_params.h"
#include "kernels/step/gx_gwr/gx_gwr_shape.h"

namespace sdm {

template <RowType kGrad, int kCopyCols, GatherShape kShape = kGwrShape>
__device__ __forceinline__ void gx_gwr_device(const GxGwrParams& params) {
  constexpr RowType kFloats = kGrad == kAnyRow ? kAnyRow : RowType::kFloat32;
  constexpr int32_t kBatch = kShape.batch, kRowBytes = GatherShape::row_bytes(kGrad);
  constexpr int32_t kRingRows = kShape.ring_rows(kGrad);
  using Raw = RawPiece<kGrad, kLaneColumns>;
  using FloatRaw = RawPiece<kFloats, kLaneColumns>;

  // Place. The grid: x = tokens, y = slices; so are the block's z and y, a warp each.
  const auto slice = static_cast<int32_t>(blockIdx.y * blockDim.y + threadIdx.y);
  const int64_t token = int64_t{blockIdx.x} * blockDim.z + threadIdx.z;
  const Team<kLaneColumns> team(params.hd, slice);
  const int64_t step_tokens = int64_t{params.num_parallel} * params.chunk_size;
  const bool exists = token < step_tokens && slice < num_slices(params.hd);
  const int64_t row = params.step * step_tokens + (exists ? token : 0);
  const ChunkTokens tokens = chunk_tokens(params, params.step, token / params.chunk_size);
  const int64_t place = tokens.place(token_in_chunk(params.chunk_size, step_tokens));
  const bool live = exists && tokens.real(place);

  // Shared memory of the warp: the ring, the writes' rows, their weights.
  const int32_t staged = kShape.staged_entries(params.num_writes);
  const auto warp = static_cast<int32_t>(threadIdx.z * blockDim.y + threadIdx.y);
  char* ring = ptx::dynamic_shared() + warp * kShape.warp_bytes(staged);
  auto* rows = reinterpret_cast<int32_t*>(ring + kShape.ring_bytes);
  auto* weights = reinterpret_cast<float*>(rows + staged);

  const ThreadRows<kFloats, kLaneColumns> delta_rows(params.delta, {RowType::kFloat32}, row,
                                                     params.hd, team.columns);
  const FloatRaw delta_raw = delta_rows.load_cached(0);

  // Stage the token's writes, two a thread at a time. Beyond them a weight of -0 and a row of zeros
  // leave every accumulator as it is: -0 * 0 = -0, and a + -0 = a for every a.
#pragma unroll 1
  for (int32_t n = team.lane; n < staged; n += 2 * kLanes) {
    int32_t slot[2];
    float weight[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t from = row * params.num_writes + min(n + i * kLanes, params.num_writes - 1);
      slot[i] = params.slots[from];
      weight[i] = params.pd[from];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t at = n + i * kLanes;
      const bool real = live && at < params.num_writes;
      if (at < staged) rows[at] = real ? slot[i] : -1;
      if (at < staged) weights[at] = real ? weight[i] : -0.0f;
    }
  }
  float delta[kLaneColumns];
  decode<kFloats, kLaneColumns>(live ? delta_raw : FloatRaw{}, 1.0f, delta);
  __syncwarp();
  pdl_wait();
  pdl_trigger();

  // Fill the ring.
  const RowCopies<kGrad, kCopyCols, kShape> copies(ring, params.grad, params.grad_type, params.hd,
                                                   team);
  const auto start = [&](int32_t n) {
    if (n < staged) {
      copies.start(n % kRingRows, rows + n);
    } else {
      ptx::copy_commit();
    }
  };
#pragma unroll 1
  for (int32_t n = 0; n < kRingRows; n += kBatch) start(n);

  // Add batch by batch, n ascending.
  float* dpd = params.dpd + slice * params.plane_stride + row * params.num_writes;
  float acc[kLaneColumns] = {};
#pragma unroll 1
  for (int32_t n = 0; n < staged; n += kBatch) {
    ptx::copy_wait<kRingRows / kBatch - 1>();
    __syncwarp();
    const char* stage = ring + n % kRingRows * kRowBytes + team.lane * sizeof(Raw);
    float dots[kBatch], weight[kBatch];
    decode<RowType::kFloat32, kBatch>(read_bits<sizeof(weight)>(weights + n), 1.0f, weight);
#pragma unroll
    for (int32_t u = 0; u < kBatch; ++u) {
      float g[kLaneColumns];
      decode<kGrad, kLaneColumns>(read_bits<sizeof(Raw)>(stage + u * kRowBytes), 1.0f, g);
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) acc[c] = fused(weight[u], g[c], acc[c]);
      dots[u] = partial_dot<kLaneColumns>(delta, g);
    }
    const float dot = team_sums<kLaneColumns, kBatch>(dots, team.member);
    const int32_t at = n + sum_index<kBatch>(team.member);
    if (exists && team.member < kBatch && at < params.num_writes) dpd[at] = dot;
    __syncwarp();
    start(n + kRingRows);
  }

  const ThreadRows<kFloats, kLaneColumns> d_dv(params.d_dv, {RowType::kFloat32}, row, params.hd,
                                               team.columns);
  if (exists) d_dv.store(0, encode<kFloats, kLaneColumns>(acc));
}

}  // namespace sdm
