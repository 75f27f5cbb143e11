// gx_pa2 on the device: one team per group of entries and column slice, rows fetched ahead of the
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
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/records/long_groups.cuh"
#include "kernels/common/records/snapshot_rows.h"
#include "kernels/common/rows/thread_ring.cuh"
#include "kernels/step/gx_pa2/gx_pa2_params.h"
#include "kernels/step/gx_pa2/gx_pa2_ring.h"

namespace sdm {

// The word of the FIRST of the group that the entry at `position` belongs to.
__device__ __forceinline__ uint32_t group_word(const Record* records, int32_t position) {
  uint32_t word = load_record(records + position).word;
  while (!record_first(word) && position > 0) {  // distances are counted up to 4095
    position -= max(1, min(record_distance(word), position));
    word = load_record(records + position).word;
  }
  return word;
}

// Where a long group's round leaves <g, m>: in its part of the stage of token rows.
__device__ __forceinline__ float& kept_gdot(char* part) { return *reinterpret_cast<float*>(part); }

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
  constexpr uint32_t kLongAt = pa2_ring_bytes(kShape, kSnap, kGrad, kCols);
  constexpr uint32_t kListAt = kLongAt + kShape.long_bytes();
  constexpr int32_t kDepth = kShape.depth;
  char* shared = ptx::dynamic_shared();
  const ThreadRing<GradRaw, kShape.threads> grad_ring(shared);
  const ThreadRing<SnapRaw, kShape.threads> snap_ring(shared + kSnapAt);
  const PlanesRing<TokenRaw, kShape.threads, kDepth> token_ring(shared + kTokenAt);
  const ThreadRing<float, kShape.threads> scale_ring(shared + kScaleAt);

  // Place: the warp's sequence, slices and tile of positions, the thread's columns. The last
  // sequence comes first: its grad rows are those that gx_gwr read last.
  const WalkPlace place(params.chunk_size * params.num_writes,
                        team_layout(params.hd, kCols).slice_groups, kShape.warps());
  const int32_t sequence = params.num_parallel - 1 - place.sequence;
  if (sequence < 0) return;
  GroupHead* list = place.list(shared + kListAt);
  const int64_t chunk = int64_t{params.step} * params.num_parallel + sequence;
  const Record* records = params.records + chunk * place.entries;
  const Team<kCols> team(params.hd, place.slice_group);
  const int64_t first_token = chunk * params.chunk_size;

  // The tile's groups. Dense snapshot rows are counted from the block of 32 entries, per-entry
  // ones from the chunk. The count is loaded whether it is used or not: no branch delays the load.
  const bool dense = params.snap_step_rows == 0;
  const int32_t blocks = (place.entries + kLanes - 1) / kLanes;
  const int32_t* counts = dense ? params.bpre + chunk * (blocks + 1) : &params.records->row;
  const int32_t count = ptx::load_now(counts + (dense ? min(place.block(), blocks) : 0));
  const LongGroups<kCols, kShape.warps()> longs(shared + kLongAt, team, place);
  const TileGroups tile = list_groups<true>(list, records, place, team.lane, longs.tail());
  const int32_t groups = tile.count;
  longs.post(list, tile);
  const int64_t first_snap =
      dense ? dense_snapshot_row(chunk, params.snap_chunk_rows, count + tile.groups_before)
            : params.step * params.snap_step_rows + int64_t{sequence} * place.entries;
  // Rows behind it: a dense group's own number, or the place of its FIRST among the entries.
  const auto snap_row = [&](int32_t group, uint32_t word) {
    return dense ? group : record_token(word) * params.num_writes + record_index(word);
  };

  const ThreadRows<kSnap, kCols> snap(params.snap, {params.snap_type, params.bank_type}, first_snap,
                                      params.hd, team.columns);
  const ThreadRows<kGrad, kCols> grad(params.grad, {params.grad_type}, 0, params.hd, team.columns);
  const ThreadRows<kBank, kCols> bank(params.bank, {params.bank_type}, 0, params.hd, team.columns);
  const ThreadRows<kFloats, kCols> d_u(params.d_u, {RowType::kFloat32}, first_token, params.hd,
                                       team.columns);

  const auto fetch_snap = [&](int32_t stage, int32_t group) {
    if (group >= groups) return;
    const uint32_t word = list[group].word;
    if (record_invalid(word)) return;  // behind the last group a chunk may have no row
    const int32_t row = snap_row(group, word);
    float scale = 1.0f;
    if constexpr (kScaled) {
      ptx::copy_async<4>(scale_ring[stage], params.scales + first_snap + row);
    } else if constexpr (kAny) {
      if (params.scales != nullptr) scale = params.scales[first_snap + row];
    }
    snap.fetch(snap_ring[stage], row, scale);
  };
  const auto fetch_written = [&](int32_t stage, int32_t group) {
    if (group < groups) {
      grad.fetch(grad_ring[stage], list[group].row, 1.0f);
      d_u.fetch_cached(token_ring, stage, record_token(list[group].word));
    }
    ptx::copy_commit();
  };

  // Fill the rings: snapshots before the wait, what the chain writes after it.
  const int32_t per_round = team.two_groups ? 2 : 1;
#pragma unroll 1
  for (int32_t stage = 0; stage < kDepth; ++stage) {
    grad.clear_unused(grad_ring[stage]);
    snap.clear_unused(snap_ring[stage]);
    d_u.clear_unused(token_ring, stage);
    fetch_snap(stage, stage * per_round + team.group_in_round);
  }
  pdl_wait();
  pdl_trigger();
#pragma unroll 1
  for (int32_t stage = 0; stage < kDepth; ++stage)
    fetch_written(stage, stage * per_round + team.group_in_round);

  // Where the entries' dots go; a single slice is its own sum and takes its factor here.
  const bool one_slice = params.hd <= 128;
  float* eff_plane =
      params.out_eff + team.slice * params.plane_stride + first_token * params.num_writes;
  const int64_t to_out_g = reinterpret_cast<char*>(params.out_g) -  // bytes
                           reinterpret_cast<char*>(params.out_eff);
  const auto beta = [&](uint32_t word) {
    return one_slice ? params.beta[first_token + record_token(word)] : 0.0f;
  };
  const auto place_of = [&](uint32_t word) {
    return eff_plane + (record_token(word) * params.num_writes + record_index(word));
  };
  const auto write_eff = [&](uint32_t word, float strength, float eff) {
    if (one_slice) eff = times(-strength, eff);
    *place_of(word) = record_invalid(word) ? 0.0f : eff;
  };
  const auto write_g = [&](uint32_t word, float decay, float gdot) {
    if (one_slice) gdot = times(decay, gdot);
    auto* to = reinterpret_cast<float*>(reinterpret_cast<char*>(place_of(word)) + to_out_g);
    *to = record_invalid(word) ? 0.0f : gdot;
  };

  // The long groups' sums, while the rows are on their way.
  longs.meet();
  const uint32_t long_warps = longs.warps();
  if (long_warps != 0) {
    longs.add(long_warps, records, params.d_u + first_token * params.hd, params.hd);
  }

  // The lead's dots with its snapshot row. Those with the grad row, which changes, are the owner's.
  if (tile.lead > 0) {
    const int64_t row = first_snap + snap_row(-1, dense ? 0 : group_word(records, place.first));
    const ThreadRows<kSnap, kCols> lead_snap(params.snap, {params.snap_type, params.bank_type}, row,
                                             params.hd, team.columns);
    float scale = 1.0f, unused[kCols] = {}, decay;
    if (team.columns.count != 0 && params.scales != nullptr) scale = params.scales[row];
    const auto m_raw = lead_snap.load(0, scale);
    const auto row_again = [&](float (&m)[kCols]) {
      decode<kSnap, kCols, kBank>(decoded_later(m_raw), scale, m);
    };
    auto lead = lead_entries(team, records, place, tile.lead);
    lead.follow(team, d_u, row_again, unused, decay, [&](const Record& entry, float eff) {
      write_eff(entry.word, beta(entry.word), eff);
    });
  }

  // Groups, in every round one for each team that works alone.
  const auto row_scale = [&](int32_t stage) {
    // Columns past the slice stay zeros whatever the row's scale is: 0 times an infinity is none.
    if constexpr (kScaled) return team.columns.count != 0 ? *scale_ring[stage] : 1.0f;
    return 1.0f;
  };
  const auto finish = [&](int32_t row, const GradRaw& g_raw, const SnapRaw& m_raw, float scale,
                          float decay, const float (&acc)[kCols]) {
    float g[kCols];
    decode<kGrad, kCols>(g_raw, 1.0f, g);
#pragma unroll
    for (int c = 0; c < kCols; ++c) g[c] = fused(g[c], decay, acc[c]);
    grad.store(row, encode<kGrad, kCols>(g));
    if constexpr (kSnap == kBank) {
      bank.store(row, m_raw);
    } else {
      float m[kCols];
      decode<kSnap, kCols, kBank>(m_raw, scale, m);
      bank.store(row, encode<kBank, kCols>(m));
    }
  };
  for (int32_t round = 0; round * per_round < groups; ++round) {
    const int32_t stage = round % kDepth;
    const int32_t group = round * per_round + team.group_in_round;
    const bool live = group < groups;
    const GroupHead head = read_head(list + (live ? group : 0));
    const bool valid = live && !record_invalid(head.word);

    // FIRST: all three rows, the chain's first link, the dots <d_u, m> and <g, m>.
    float x[kCols], g[kCols], m[kCols], acc[kCols];
    const float strength = beta(head.word);
    ptx::copy_wait<kDepth - 1>();
    const auto g_raw = read_bits<sizeof(GradRaw)>(grad_ring[stage]);
    const auto m_raw = read_bits<sizeof(SnapRaw)>(snap_ring[stage]);
    const auto x_raw = token_ring.read(stage);
    const float scale = row_scale(stage);
    decode<kFloats, kCols>(x_raw, 1.0f, x);
    decode<kGrad, kCols>(g_raw, 1.0f, g);
    decode<kSnap, kCols, kBank>(m_raw, scale, m);
    float dots[2] = {partial_dot<kCols>(x, m), partial_dot<kCols>(g, m)};
#pragma unroll
    for (int c = 0; c < kCols; ++c) acc[c] = fused(head.scale, x[c], 0.0f);

    // The stage is read: fetch the group kDepth rounds further on.
    fetch_snap(stage, group + kDepth * per_round);
    fetch_written(stage, group + kDepth * per_round);

    const float own = team_sums<kCols, 2>(dots, team.member);
    const float other = __shfl_xor_sync(kFullWarp, own, 1);
    const float gdot = team.member % 2 == 0 ? other : own;
    if (live && team.member == 0) {
      write_eff(head.word, strength, own);
      write_g(head.word, head.decay, gdot);
    }

    // The entries up to LAST, or of a long group up to the tile's end.
    float decay = head.decay;
    GroupRest<kCols> rest = rest_of<kCols>(group, head, tile, records, place);
    const auto row_again = [&](float (&again)[kCols]) {
      decode<kSnap, kCols, kBank>(decoded_later(m_raw), scale, again);
    };
    rest.follow(team, d_u, row_again, acc, decay, [&](const Record& entry, float eff) {
      write_eff(entry.word, beta(entry.word), eff);
      write_g(entry.word, entry.decay, gdot);
    });

    // LAST: the grad row advanced, the bank row restored.
    if (rest.more) kept_gdot(token_ring[stage]) = gdot;
    if (valid && !rest.more) finish(head.row, g_raw, m_raw, scale, decay, acc);
  }

  // A long group: its sum is the block's, its rows and <g, m> are where the last round left them.
  if (tile.is_long) {
    const bool mine = owns_last(team, groups);
    const int32_t stage = last_stage(groups, per_round, kDepth);
    const float gdot = kept_gdot(token_ring[stage]);
    for_tail<kCols>(records, place, team.member, [&](const Record& entry) {
      if (mine) write_g(entry.word, entry.decay, gdot);
    });
    if (!mine) return;
    float acc[kCols], decay;
    const GroupHead head = read_head(list + groups - 1);
    if (!longs.read(long_warps, acc, decay)) {
      whole_group<kCols>(head, records, place).add_from_zero(d_u, acc, decay);
    }
    finish(head.row, read_bits<sizeof(GradRaw)>(grad_ring[stage]),
           read_bits<sizeof(SnapRaw)>(snap_ring[stage]), row_scale(stage), decay, acc);
  }
}

}  // namespace sdm
