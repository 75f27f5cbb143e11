// gx_gds on the device: one team per group of read entries and column slice, rows fetched ahead of
// the arithmetic through a ring of asynchronous copies (DESIGN.md).
//
// operand   written in the chain by   loaded
// records   nothing                   before the wait, L1
// gy        nothing                   after the wait, L1
// grad      gx_pa2, gx_gds            after the wait, L2, ring
// bank      gx_pa2                    after the wait, L2, ring
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/records/long_groups.cuh"
#include "kernels/common/rows/thread_ring.cuh"
#include "kernels/step/gx_gds/gx_gds_params.h"
#include "kernels/step/gx_gds/gx_gds_ring.h"

namespace sdm {

template <RowType kBank, RowType kGrad, int kCols, WalkShape kShape = kGdsShape>
__device__ __forceinline__ void gx_gds_device(const GxGdsParams& params) {
  constexpr RowType kFloats = kBank == kAnyRow ? kAnyRow : RowType::kFloat32;
  using GradRaw = RawPiece<kGrad, kCols>;
  using BankRaw = RawPiece<kBank, kCols>;
  constexpr uint32_t kBankAt = kShape.ring_bytes(kGrad, kCols);
  constexpr uint32_t kLongAt = gds_ring_bytes(kShape, kBank, kGrad, kCols);
  constexpr uint32_t kListAt = kLongAt + kShape.long_bytes();
  constexpr int32_t kDepth = kShape.depth;
  char* shared = ptx::dynamic_shared();
  const ThreadRing<GradRaw, kShape.threads> grad_ring(shared);
  const ThreadRing<BankRaw, kShape.threads> bank_ring(shared + kBankAt);

  // Place: the warp's sequence, slices and tile of positions, the thread's columns.
  const WalkPlace place(params.chunk_size * params.num_reads,
                        team_layout(params.hd, kCols).slice_groups, kShape.warps());
  if (place.sequence >= params.num_parallel) return;
  GroupHead* list = place.list(shared + kListAt);
  const int64_t chunk = int64_t{params.step} * params.num_parallel + place.sequence;
  const Record* records = params.records + chunk * place.entries;
  const Team<kCols> team(params.hd, place.slice_group);
  const int64_t first_token = chunk * params.chunk_size;

  const LongGroups<kCols, kShape.warps()> longs(shared + kLongAt, team, place);
  const TileGroups tile = list_groups<false>(list, records, place, team.lane, longs.tail());
  const int32_t groups = tile.count;
  longs.post(list, tile);
  const ThreadRows<kGrad, kCols> grad(params.grad, {params.grad_type}, 0, params.hd, team.columns);
  const ThreadRows<kBank, kCols> bank(params.bank, {params.bank_type}, 0, params.hd, team.columns);
  const ThreadRows<kFloats, kCols> gy(params.gy, {RowType::kFloat32}, first_token, params.hd,
                                      team.columns);

  const auto fetch = [&](int32_t stage, int32_t group) {
    if (group < groups) {
      grad.fetch(grad_ring[stage], list[group].row, 1.0f);
      bank.fetch(bank_ring[stage], list[group].row, 1.0f);
    }
    ptx::copy_commit();
  };

  // Fill the ring. Both rows are written by the kernels before this one.
  const int32_t per_round = team.two_groups ? 2 : 1;
#pragma unroll 1
  for (int32_t stage = 0; stage < kDepth; ++stage) {
    grad.clear_unused(grad_ring[stage]);
    bank.clear_unused(bank_ring[stage]);
  }
  pdl_wait();
  pdl_trigger();
#pragma unroll 1
  for (int32_t stage = 0; stage < kDepth; ++stage)
    fetch(stage, stage * per_round + team.group_in_round);

  float* dq = params.dq + team.slice * params.plane_stride + first_token * params.num_reads;
  const auto write = [&](uint32_t word, float dot) {
    const int32_t to = record_token(word) * params.num_reads + record_index(word);
    dq[to] = record_invalid(word) ? 0.0f : dot;
  };

  // The long groups' sums, while the rows are on their way.
  longs.meet();
  const uint32_t long_warps = longs.warps();
  if (long_warps != 0) {
    longs.add(long_warps, records, params.gy + first_token * params.hd, params.hd);
  }

  // The lead's dots.
  if (tile.lead > 0) {
    float unused[kCols] = {}, decay;
    const auto m_raw = bank.load(load_record(records + place.first).row);
    const auto row = [&](float (&m)[kCols]) {
      decode<kBank, kCols>(decoded_later(m_raw), 1.0f, m);
    };
    auto lead = lead_entries(team, records, place, tile.lead);
    lead.follow(team, gy, row, unused, decay,
                [&](const Record& entry, float dot) { write(entry.word, dot); });
  }

  // Groups, in every round one for each team that works alone.
  const auto finish = [&](int32_t row, const GradRaw& g_raw, const float (&acc)[kCols]) {
    float g[kCols];
    decode<kGrad, kCols>(g_raw, 1.0f, g);
#pragma unroll
    for (int c = 0; c < kCols; ++c) g[c] = plus(g[c], acc[c]);
    grad.store(row, encode<kGrad, kCols>(g));
  };
  for (int32_t round = 0; round * per_round < groups; ++round) {
    const int32_t stage = round % kDepth;
    const int32_t group = round * per_round + team.group_in_round;
    const bool live = group < groups;
    const GroupHead head = read_head(list + (live ? group : 0));
    const bool valid = live && !record_invalid(head.word);

    // FIRST: both rows, the sum's first link, the dot <gy, bank row>.
    float x[kCols], m[kCols], acc[kCols];
    const auto x_raw = gy.load_cached(record_token(head.word));
    ptx::copy_wait<kDepth - 1>();
    const auto g_raw = read_bits<sizeof(GradRaw)>(grad_ring[stage]);
    const auto m_raw = read_bits<sizeof(BankRaw)>(bank_ring[stage]);
    decode<kFloats, kCols>(x_raw, 1.0f, x);
    decode<kBank, kCols>(m_raw, 1.0f, m);
    const float partial = partial_dot<kCols>(x, m);
#pragma unroll
    for (int c = 0; c < kCols; ++c) acc[c] = fused(head.scale, x[c], 0.0f);

    // The stage is read: fetch the group kDepth rounds further on.
    fetch(stage, group + kDepth * per_round);

    const float dot = team_sum<kCols>(partial);
    if (live && team.member == 0) write(head.word, dot);

    // The entries up to LAST, or of a long group up to the tile's end.
    float decay;  // read entries have none
    GroupRest<kCols> rest = rest_of<kCols>(group, head, tile, records, place);
    const auto row = [&](float (&again)[kCols]) {
      decode<kBank, kCols>(decoded_later(m_raw), 1.0f, again);
    };
    rest.follow(team, gy, row, acc, decay,
                [&](const Record& entry, float other) { write(entry.word, other); });

    // LAST: the grad row with the readings' gradient added.
    if (valid && !rest.more) finish(head.row, g_raw, acc);
  }

  // A long group: its sum is the block's, its row is where the last round left it.
  if (tile.is_long && owns_last(team, groups)) {
    float acc[kCols], decay;
    const GroupHead head = read_head(list + groups - 1);
    if (!longs.read(long_warps, acc, decay)) {
      whole_group<kCols>(head, records, place).add_from_zero(gy, acc, decay);
    }
    finish(head.row, read_bits<sizeof(GradRaw)>(grad_ring[last_stage(groups, per_round, kDepth)]),
           acc);
  }
}

}  // namespace sdm
