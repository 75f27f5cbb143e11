// fx_write on the device: one team per group of write entries and column slice, rows fetched ahead
// of the arithmetic through a ring of asynchronous copies (DESIGN.md).
//
// operand   written in the chain by   loaded
// updates   nothing                   before the wait, L1
// bpre      nothing                   before the wait
// delta     gx_gemm                   after the wait, L1 (no SM has cached this step's rows before)
// bank      fx_write                  after the wait, L2, ring
// snap      fx_write                  never (stored only)
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/records/long_groups.cuh"
#include "kernels/common/records/snapshot_rows.h"
#include "kernels/common/rows/thread_ring.cuh"
#include "kernels/step/fx_write/fx_write_params.h"
#include "kernels/step/fx_write/fx_write_ring.h"

namespace sdm {

template <RowType kBank, int kCols, WalkShape kShape = kWriteShape>
__device__ __forceinline__ void fx_write_device(const FxWriteParams& params) {
  constexpr RowType kFloats = kBank == kAnyRow ? kAnyRow : RowType::kFloat32;
  using Raw = RawPiece<kBank, kCols>;
  constexpr uint32_t kLongAt = write_ring_bytes(kShape, kBank, kCols);
  constexpr uint32_t kListAt = kLongAt + kShape.long_bytes();
  constexpr int32_t kDepth = kShape.depth;
  char* shared = ptx::dynamic_shared();
  const ThreadRing<Raw, kShape.threads> ring(shared);

  // Place: the warp's sequence, slices and tile of positions, the thread's columns.
  const WalkPlace place(params.chunk_size * params.num_writes,
                        team_layout(params.hd, kCols).slice_groups, kShape.warps());
  if (place.sequence >= params.num_parallel) return;
  GroupHead* list = place.list(shared + kListAt);
  const int64_t chunk = int64_t{params.step} * params.num_parallel + place.sequence;
  const Record* updates = params.updates + chunk * place.entries;
  const Team<kCols> team(params.hd, place.slice_group);
  const int64_t first_token = chunk * params.chunk_size;

  // The tile's groups, their ordinals counted from the block of 32 entries. The count is
  // loaded whether it is used or not: no branch delays the load.
  const bool keeps = params.snap != nullptr;
  const int32_t blocks = (place.entries + kLanes - 1) / kLanes;
  const int32_t* counts = keeps ? params.bpre + chunk * (blocks + 1) : &params.updates->row;
  const int32_t count = ptx::load_now(counts + (keeps ? min(place.block(), blocks) : 0));
  const LongGroups<kCols, kShape.warps()> longs(shared + kLongAt, team, place);
  const TileGroups tile = list_groups<true>(list, updates, place, team.lane, longs.tail());
  const int32_t groups = tile.count;
  longs.post(list, tile);
  const int32_t first_ordinal = count + tile.groups_before;

  const ThreadRows<kBank, kCols> bank(params.bank, {params.bank_type}, 0, params.hd, team.columns);
  const ThreadRows<kBank, kCols> snap(params.snap, {params.bank_type},
                                      chunk * params.snap_chunk_rows, params.hd, team.columns);
  const ThreadRows<kFloats, kCols> delta(params.delta, {RowType::kFloat32}, first_token, params.hd,
                                         team.columns);

  const auto fetch = [&](int32_t stage, int32_t group) {
    if (group < groups) bank.fetch(ring[stage], list[group].row, 1.0f);
    ptx::copy_commit();
  };

  // Fill the ring.
  const int32_t per_round = team.two_groups ? 2 : 1;
#pragma unroll 1
  for (int32_t stage = 0; stage < kDepth; ++stage) bank.clear_unused(ring[stage]);
  pdl_wait();
  pdl_trigger();
#pragma unroll 1
  for (int32_t stage = 0; stage < kDepth; ++stage)
    fetch(stage, stage * per_round + team.group_in_round);

  // The long groups' sums, while the rows are on their way.
  longs.meet();
  const uint32_t long_warps = longs.warps();
  if (long_warps != 0) {
    longs.add(long_warps, updates, params.delta + first_token * params.hd, params.hd);
  }

  // Groups, in every round one for each team that works alone.
  const auto finish = [&](int32_t row, const Raw& m_raw, float decay, const float (&acc)[kCols]) {
    float m[kCols];
    decode<kBank, kCols>(m_raw, 1.0f, m);
#pragma unroll
    for (int c = 0; c < kCols; ++c) m[c] = fused(m[c], decay, acc[c]);
    bank.store(row, encode<kBank, kCols>(m));
  };
  for (int32_t round = 0; round * per_round < groups; ++round) {
    const int32_t stage = round % kDepth;
    const int32_t group = round * per_round + team.group_in_round;
    const bool live = group < groups;
    const GroupHead head = read_head(list + (live ? group : 0));
    const bool valid = live && !record_invalid(head.word);

    // FIRST: the row, kept as it was, and the sum's first link.
    float x[kCols], acc[kCols];
    const auto x_raw = delta.load_cached(record_token(head.word));
    ptx::copy_wait<kDepth - 1>();
    const auto m_raw = read_bits<sizeof(Raw)>(ring[stage]);
    if (keeps && valid) {
      snap.store(row_of_ordinal(first_ordinal + group, params.snap_chunk_rows), m_raw);
    }
    decode<kFloats, kCols>(x_raw, 1.0f, x);
#pragma unroll
    for (int c = 0; c < kCols; ++c) acc[c] = fused(head.scale, x[c], 0.0f);

    // The stage is read: fetch the group kDepth rounds further on.
    fetch(stage, group + kDepth * per_round);

    // The other entries, but for those of a long group.
    float decay = head.decay;
    const bool later = tile.is_long && group == groups - 1;
    if (!later) {
      GroupRest<kCols>{updates, place.entries, position_of(head, place) + 1,
                       live && !record_last(head.word)}
          .add(delta, acc, decay);
    }

    // LAST: the row advanced.
    if (valid && !later) finish(head.row, m_raw, decay, acc);
  }

  // A long group: its sum is the block's, its row is where the last round left it.
  if (tile.is_long && owns_last(team, groups)) {
    float acc[kCols], decay;
    const GroupHead head = read_head(list + groups - 1);
    if (!longs.read(long_warps, acc, decay)) {
      whole_group<kCols>(head, updates, place).add_from_zero(delta, acc, decay);
    }
    finish(head.row, read_bits<sizeof(Raw)>(ring[last_stage(groups, per_round, kDepth)]), decay,
           acc);
  }
}

}  // namespace sdm
