// fx_read on the device: one warp per token and column slice walks the token's writes, then its
// reads, in order, the rows gathered ahead through a ring of asynchronous copies (DESIGN.md).
//
// operand       written in the chain by   loaded
// row_weights   nothing                   before the wait
// v             nothing                   before the wait
// bank          fx_write                  after the wait, L2, ring
// residual      fx_read                   never (stored only)
// reading       fx_read                   never (stored only)
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/records/chunk_tokens.h"
#include "kernels/common/rows/row_copies.cuh"
#include "kernels/step/fx_read/fx_read_params.h"
#include "kernels/step/fx_read/fx_read_shape.h"

namespace sdm {

// One entry by one 8-byte load.
__device__ __forceinline__ RowWeight load_row_weight(const RowWeight* from) {
  const uint2 v = *reinterpret_cast<const uint2*>(from);
  return {static_cast<int32_t>(v.x), __uint_as_float(v.y)};
}

template <RowType kBank, int kCopyCols, GatherShape kShape = kReadShape>
__device__ __forceinline__ void fx_read_device(const FxReadParams& params) {
  constexpr RowType kFloats = kBank == kAnyRow ? kAnyRow : RowType::kFloat32;
  constexpr int32_t kBatch = kShape.batch, kRowBytes = GatherShape::row_bytes(kBank);
  constexpr int32_t kRingRows = kShape.ring_rows(kBank);
  using Raw = RawPiece<kBank, kLaneColumns>;

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

  // Shared memory of the warp: the ring, the entries' rows, their weights. Writes, then reads, both
  // padded to whole batches.
  const int32_t reads_at = kShape.staged_entries(params.num_writes);
  const int32_t staged = reads_at + kShape.staged_entries(params.num_reads);
  const auto warp = static_cast<int32_t>(threadIdx.z * blockDim.y + threadIdx.y);
  char* ring = ptx::dynamic_shared() + warp * kShape.warp_bytes(staged);
  auto* rows = reinterpret_cast<int32_t*>(ring + kShape.ring_bytes);
  auto* weights = reinterpret_cast<float*>(rows + staged);

  const ThreadRows<kBank, kLaneColumns> v_rows(params.v, {params.bank_type}, row, params.hd,
                                               team.columns);
  const Raw v_raw = v_rows.load_cached(0);

  // Stage the token's entries. The padding's weight of -0 and row of zeros leave every accumulator
  // as it is: -0 * 0 = -0, and a + -0 = a for every a.
  const RowWeight* entries = params.row_weights + row * (params.num_writes + params.num_reads);
#pragma unroll 2
  for (int32_t n = team.lane; n < staged; n += kLanes) {
    const bool reads = n >= reads_at;
    const int32_t index = reads ? n - reads_at : n;
    const int32_t count = reads ? params.num_reads : params.num_writes;
    const int32_t from = (reads ? params.num_writes : 0) + min(index, count - 1);
    const RowWeight entry = load_row_weight(entries + from);
    const bool real = live && index < count;
    rows[n] = real ? entry.row : -1;
    weights[n] = real ? entry.weight : -0.0f;
  }
  float acc[kLaneColumns];
  decode<kBank, kLaneColumns>(live ? v_raw : Raw{}, 1.0f, acc);
  __syncwarp();
  pdl_wait();
  pdl_trigger();

  // Fill the ring.
  const RowCopies<kBank, kCopyCols, kShape> copies(ring, params.bank, params.bank_type, params.hd,
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

  const auto store = [&](float* to) {
    const ThreadRows<kFloats, kLaneColumns> out(to, {RowType::kFloat32}, row, params.hd,
                                                team.columns);
    if (exists) out.store(0, encode<kFloats, kLaneColumns>(acc));
  };

  // Add batch by batch, entries ascending.
#pragma unroll 1
  for (int32_t n = 0; n < staged; n += kBatch) {
    if (n == reads_at) {
      store(params.residual);
#pragma unroll
      for (float& a : acc) a = 0.0f;
    }
    ptx::copy_wait<kRingRows / kBatch - 1>();
    __syncwarp();
    const char* stage = ring + n % kRingRows * kRowBytes + team.lane * sizeof(Raw);
    float weight[kBatch];
    decode<RowType::kFloat32, kBatch>(read_bits<sizeof(weight)>(weights + n), 1.0f, weight);
#pragma unroll
    for (int32_t u = 0; u < kBatch; ++u) {
      float m[kLaneColumns];
      decode<kBank, kLaneColumns>(read_bits<sizeof(Raw)>(stage + u * kRowBytes), 1.0f, m);
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) acc[c] = fused(weight[u], m[c], acc[c]);
    }
    __syncwarp();
    start(n + kRingRows);
  }
  store(params.reading);
}

}  // namespace sdm
