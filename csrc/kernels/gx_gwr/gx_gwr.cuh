// gx_gwr on the device: one team per token and column slice walks the token's writes in order, two
// batches of rows in flight in registers (DESIGN.md).
//
// operand   written in the chain by   loaded
// slots     nothing                   before the wait
// pd        nothing                   before the wait
// delta     nothing                   before the wait
// grad      gx_pa2, gx_gds            after the wait, L2
#pragma once
#include "kernels/common/pdl.cuh"
#include "kernels/common/team.cuh"
#include "kernels/gx_gwr/gx_gwr_params.h"
#include "kernels/gx_gwr/gx_gwr_staging.h"

namespace sdm {

template <RowType kGrad, int kCols>
__device__ __forceinline__ void gx_gwr_device(const GxGwrParams& params) {
  constexpr RowType kFloats = kGrad == kAnyRow ? kAnyRow : RowType::kFloat32;
  using Raw = RawPiece<kGrad, kCols>;
  constexpr int32_t kBatch = 128 / sizeof(Raw);  // rows loaded together: 32 registers
  static_assert(kGwrPad % kBatch == 0 && kBatch <= Team<kCols>::kSize);

  // Place. The grid: x = tokens, y = slice groups; so are the block's z and y, a warp each.
  const TeamLayout layout = team_layout(params.hd, kCols);
  const auto slice_group = static_cast<int32_t>(blockIdx.y * blockDim.y + threadIdx.y);
  const Team<kCols> team(params.hd, slice_group);
  const auto warp_tokens = static_cast<int32_t>(blockIdx.x * blockDim.z + threadIdx.z);
  const int32_t token = warp_tokens * layout.streams_per_warp + team.stream;
  const int32_t step_tokens = params.num_parallel * params.chunk_size;
  const bool exists = token < step_tokens && slice_group < layout.slice_groups;
  const int64_t row = int64_t{params.step} * step_tokens + (exists ? token : 0);
  const int64_t in_sequence = int64_t{params.step} * params.chunk_size + token % params.chunk_size;
  const bool live = exists && in_sequence < params.num_tokens;

  // Stage the token's writes. A weight of -0 and a row of zeros leave every accumulator as it is:
  // -0 * 0 = -0, and a + -0 = a for every a.
  const int32_t staged = gwr_staged_writes(params.num_writes);
  const auto warp = static_cast<int32_t>(threadIdx.z * blockDim.y + threadIdx.y);
  auto* writes = reinterpret_cast<GwrWrite*>(ptx::dynamic_shared()) +
                 (warp * layout.streams_per_warp + team.stream) * staged;
  const int32_t sharers = kLanes / layout.streams_per_warp;
  for (int32_t n = team.lane % sharers; n < staged; n += sharers) {
    const bool real = live && n < params.num_writes;
    const int64_t from = row * params.num_writes + n;
    writes[n] = real ? GwrWrite{params.slots[from], params.pd[from]} : GwrWrite{-1, -0.0f};
  }
  const ThreadRows<kFloats, kCols> delta_rows(params.delta, {RowType::kFloat32}, row, params.hd,
                                              team.columns);
  float delta[kCols];
  decode<kFloats, kCols>(live ? delta_rows.load_cached(0) : RawPiece<kFloats, kCols>{}, 1.0f,
                         delta);
  __syncwarp();
  pdl_wait();
  pdl_trigger();

  // Gather, n ascending.
  const ThreadRows<kGrad, kCols> grad(params.grad, {params.grad_type}, 0, params.hd, team.columns);
  float* dpd = params.dpd + team.slice * params.plane_stride + row * params.num_writes;
  float acc[kCols] = {};
  const auto load = [&](Raw(&rows)[kBatch], int32_t n) {
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int32_t slot = writes[n + u].row;
      rows[u] = slot >= 0 ? grad.load(slot) : Raw{};
    }
  };
  const auto add = [&](const Raw(&rows)[kBatch], int32_t n) {
    float dots[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const float weight = writes[n + u].weight;
      float g[kCols];
      decode<kGrad, kCols>(rows[u], 1.0f, g);
#pragma unroll
      for (int c = 0; c < kCols; ++c) acc[c] = fused(weight, g[c], acc[c]);
      dots[u] = partial_dot<kCols>(delta, g);
    }
    const float dot = team_sums<kCols, kBatch>(dots, team.member);
    const int32_t at = n + sum_index<kBatch>(team.member);
    if (exists && team.member < kBatch && at < params.num_writes) dpd[at] = dot;
  };
  Raw even[kBatch], odd[kBatch];
  const int32_t padded = (params.num_writes + kBatch - 1) / kBatch * kBatch;
  load(even, 0);
  if (kBatch < padded) load(odd, kBatch);
  for (int32_t n = 0; n < padded; n += 2 * kBatch) {
    add(even, n);
    if (n + 2 * kBatch < padded) load(even, n + 2 * kBatch);
    if (n + kBatch < padded) add(odd, n + kBatch);
    if (n + 3 * kBatch < padded) load(odd, n + 3 * kBatch);
  }

  const ThreadRows<kFloats, kCols> d_dv(params.d_dv, {RowType::kFloat32}, row, params.hd,
                                        team.columns);
  if (exists) d_dv.store(0, encode<kFloats, kCols>(acc));
}

}  // namespace sdm
