// gx_pa2 on the device: one team per group of records and column slice, rows fetched ahead of the
// arithmetic through a ring of asynchronous copies (DESIGN.md).
//
// operand   written in the chain by   loaded
// records   nothing                   before the wait, L1
// bpre      nothing                   before the wait
// snap      nothing                   before the wait, ring
// scales    nothing                   before the wait, ring
// beta      nothing                   after the wait
// d_u       gx_gemm                   after the wait, L1 (no SM has read this step's rows before),
//                                     ring
// grad      gx_pa2, gx_gds            after the wait, L2, ring
// bank      gx_pa2                    never (stored only)
#pragma once
#include "kernels/common/group_walk.cuh"
#include "kernels/common/pdl.cuh"
#include "kernels/common/thread_ring.cuh"
#include "kernels/gx_pa2/gx_pa2_params.h"
#include "kernels/gx_pa2/gx_pa2_ring.h"

namespace sdm {

template <RowType kBank, RowType kSnap, RowType kGrad, int kCols, WalkShape kShape = kPa2Shape>
__device__ __forceinline__ void gx_pa2_device(const GxPa2Params& params) {
  constexpr bool kAny = kBank == kAnyRow;
  constexpr RowType kFloats = kAny ? kAnyRow : RowType::kFloat32;
  constexpr bool kScaled = is_quantized(kSnap);
  using GradRaw = RawPiece<kGrad, kCols>;
  using SnapRaw = RawPiece<kSnap, kCols>;
  using TokenRaw = RawPiece<kFloats, kCols>;
  constexpr uint32_t kSnapAt = kShape.ring_bytes(kGrad, kCols);
  constexpr uint32_t kTokenAt = kSnapAt + kShape.ring_bytes(kSnap, kCols);
  constexpr uint32_t kScaleAt = kTokenAt + kShape.ring_bytes(kFloats, kCols);
  constexpr uint32_t kListAt = pa2_ring_bytes(kShape, kSnap, kGrad, kCols);
  constexpr int32_t kDepth = kShape.depth;
  char* shared = ptx::dynamic_shared();
  const ThreadRing<GradRaw, kShape.threads> grad_ring(shared);
  const ThreadRing<SnapRaw, kShape.threads> snap_ring(shared + kSnapAt);
  const ThreadRing<TokenRaw, kShape.threads> token_ring(shared + kTokenAt);
  const ThreadRing<float, kShape.threads> scale_ring(shared + kScaleAt);

  // Place: the warp's stream, slices and tile of positions, the thread's columns. The last stream
  // comes first: its grad rows are those that gx_gwr read last.
  const WalkPlace place(params.chunk_size * params.num_writes,
                        team_layout(params.hd, kCols).slice_groups, kShape.warps());
  const int32_t stream = params.num_parallel - 1 - place.stream;
  if (stream < 0) return;
  GroupHead* list = place.list(shared + kListAt);
  const int64_t chunk = int64_t{params.step} * params.num_parallel + stream;
  const Record* records = params.records + chunk * place.entries;
  const Team<kCols> team(params.hd, place.slice_group);
  const int64_t first_token = chunk * params.chunk_size;

  // The tile's groups. Dense snapshot rows are counted from the block of 32 records, per-entry
  // ones from the chunk. The count is loaded whether it is used or not: no branch delays the load.
  const bool dense = params.snap_step_rows == 0;
  const int32_t blocks = (place.entries + kLanes - 1) / kLanes;
  const int32_t* counts = dense ? params.bpre + chunk * (blocks + 1) : &params.records->row;
  const int32_t count = ptx::load_now(counts + (dense ? min(place.block(), blocks) : 0));
  const int64_t first_snap =
      dense ? chunk * place.entries + count
            : params.step * params.snap_step_rows + int64_t{stream} * place.entries;
  const int32_t groups = list_groups(
      list, records, place, team.lane, [&](const Record& record, int32_t groups_before) {
        return dense ? groups_before
                     : record_token(record.word) * params.num_writes + record_index(record.word);
      });

  const ThreadRows<kSnap, kCols> snap(params.snap, {params.snap_type, params.bank_type}, first_snap,
                                      params.hd, team.columns);
  const ThreadRows<kGrad, kCols> grad(params.grad, {params.grad_type}, 0, params.hd, team.columns);
  const ThreadRows<kBank, kCols> bank(params.bank, {params.bank_type}, 0, params.hd, team.columns);
  const ThreadRows<kFloats, kCols> d_u(params.d_u, {RowType::kFloat32}, first_token, params.hd,
                                       team.columns);

  const auto fetch_snap = [&](int32_t slot, int32_t group) {
    if (group >= groups || list[group].row < 0) return;
    const int32_t row = list[group].snap_row;
    float scale = 1.0f;
    if constexpr (kScaled) {
      ptx::copy_async<4>(scale_ring[slot], params.scales + first_snap + row);
    } else if constexpr (kAny) {
      if (params.scales != nullptr) scale = params.scales[first_snap + row];
    }
    snap.fetch(snap_ring[slot], row, scale);
  };
  const auto fetch_written = [&](int32_t slot, int32_t group) {
    if (group < groups) {
      if (list[group].row >= 0) grad.fetch(grad_ring[slot], list[group].row, 1.0f);
      d_u.fetch_cached(token_ring[slot], record_token(list[group].word));
    }
    ptx::copy_commit();
  };

  // Fill the rings: snapshots before the wait, what the chain writes after it.
  const int32_t streams = team.two_streams ? 2 : 1;
#pragma unroll 1
  for (int32_t slot = 0; slot < kDepth; ++slot) {
    grad.clear_unused(grad_ring[slot]);
    snap.clear_unused(snap_ring[slot]);
    d_u.clear_unused(token_ring[slot]);
    fetch_snap(slot, slot * streams + team.stream);
  }
  pdl_wait();
  pdl_trigger();
#pragma unroll 1
  for (int32_t slot = 0; slot < kDepth; ++slot) fetch_written(slot, slot * streams + team.stream);

  // Where the entries' dots go; a single slice is its own sum and takes its factor here.
  const bool one_slice = num_slices(params.hd) == 1;
  const int64_t plane = team.slice * params.plane_stride + first_token * params.num_writes;
  const auto beta = [&](uint32_t word) {
    return one_slice ? params.beta[first_token + record_token(word)] : 0.0f;
  };
  const auto write = [&](uint32_t word, float strength, float decay, float eff, float gdot) {
    const int32_t to = record_token(word) * params.num_writes + record_index(word);
    if (one_slice) {
      eff = times(-strength, eff);
      gdot = times(decay, gdot);
    }
    const bool padding = record_invalid(word);
    params.out_eff[plane + to] = padding ? 0.0f : eff;
    params.out_g[plane + to] = padding ? 0.0f : gdot;
  };

  // Groups, one a round for each stream of the warp.
  for (int32_t round = 0; round * streams < groups; ++round) {
    const int32_t slot = round % kDepth;
    const int32_t group = round * streams + team.stream;
    const bool live = group < groups;
    const GroupHead head = read_head(list + (live ? group : 0));

    // FIRST: all three rows, the chain's first link, the dots <d_u, m> and <g, m>.
    float x[kCols], g[kCols], m[kCols], acc[kCols];
    const float strength = beta(head.word);
    ptx::copy_wait<kDepth - 1>();
    const auto g_raw = read_bits<sizeof(GradRaw)>(grad_ring[slot]);
    const auto m_raw = read_bits<sizeof(SnapRaw)>(snap_ring[slot]);
    const auto x_raw = read_bits<sizeof(TokenRaw)>(token_ring[slot]);
    float scale = 1.0f;
    // Columns past the slice stay zeros whatever the row's scale is: 0 times an infinity is none.
    if constexpr (kScaled) scale = team.columns.count != 0 ? *scale_ring[slot] : 1.0f;
    decode<kFloats, kCols>(x_raw, 1.0f, x);
    decode<kGrad, kCols>(g_raw, 1.0f, g);
    decode<kSnap, kCols, kBank>(m_raw, scale, m);
    float dots[2] = {partial_dot<kCols>(x, m), partial_dot<kCols>(g, m)};
#pragma unroll
    for (int c = 0; c < kCols; ++c) acc[c] = fused(head.scale, x[c], 0.0f);

    // The slot is read: fetch the group kDepth rounds further on.
    fetch_snap(slot, group + kDepth * streams);
    fetch_written(slot, group + kDepth * streams);

    const float own = team_sums<kCols, 2>(dots, team.member);
    const float other = __shfl_xor_sync(kFullWarp, own, 1);
    const float gdot = team.member % 2 == 0 ? other : own;
    if (live && team.member == 0) write(head.word, strength, head.decay, own, gdot);

    // The entries up to LAST.
    float decay = head.decay;
    GroupRest<kCols> rest{records, place.entries, head.position + 1,
                          live && !record_last(head.word)};
    rest.follow(team, d_u, m, acc, decay, [&](const Record& entry, float eff) {
      write(entry.word, beta(entry.word), entry.decay, eff, gdot);
    });

    // LAST: the grad row advanced, the bank row restored.
    if (live && head.row >= 0) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) acc[c] = fused(g[c], decay, acc[c]);
      grad.store(head.row, encode<kGrad, kCols>(acc));
      if constexpr (kSnap == kBank) {
        bank.store(head.row, m_raw);
      } else {
        bank.store(head.row, encode<kBank, kCols>(m));
      }
    }
  }
}

}  // namespace sdm
