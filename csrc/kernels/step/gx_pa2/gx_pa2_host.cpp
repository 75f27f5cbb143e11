#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/host_rows.h"
#include "kernels/common/host/lane_dots.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/host/slice_dispatch.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/records/record_tiles.h"
#include "kernels/common/records/snapshot_rows.h"
#include "kernels/step/gx_pa2/entry_snapshots.h"
#include "kernels/step/gx_pa2/gx_pa2.h"

namespace sdm {
namespace {

// Valid FIRSTs of the chunk before the tile: a tile starts where a block of bpre does.
static_assert(RecordTiles::kPositions % 32 == 0);
SDM_HD int32_t ordinal_at(const GxPa2Params& params, const RecordTile& tile) {
  return groups_before(params.bpre, tile.chunk, tile.entries, tile.begin);
}

SDM_HD void clear_outputs(const GxPa2Params& params, const RecordTile& tile, int64_t entry) {
  for (int32_t s = tile.first_slice; s < tile.end_slice; ++s) {
    params.out_eff[s * params.plane_stride + entry] = 0.0f;
    params.out_g[s * params.plane_stride + entry] = 0.0f;
  }
}

// The bank row becomes the snapshot row: its bits, or its decoded values.
template <int kColumns, bool kFull>
SDM_HD void restore(const GxPa2Params& params, int64_t row, const char* snap_row, ColumnSlice slice,
                    const LaneColumns<kColumns>& snapshot) {
  const RowType type = params.bank_type;
  char* to = row_address(params.bank, type, row, params.hd, slice.first);
  if (type == params.snap_type) {
    std::memcpy(to, snap_row, row_bytes(type, kFull ? kColumns : slice.width));
  } else {
    store_slice<kColumns, kFull>(type, snapshot, slice.width, to);
  }
}

// One group of writes, one slice.
template <int kColumns, bool kFull>
SDM_HD void write_group(const GxPa2Params& params, const RecordTile& tile, const RecordGroup& group,
                        int64_t snap_row, int32_t s, DotBatch& effs, DotBatch& gdots) {
  const int32_t hd = params.hd;
  const ColumnSlice slice = column_slice(hd, s);
  const bool one_slice = num_slices(hd) == 1;
  const int32_t row = group.records[0].row;
  char* grad_row = row_address(params.grad, params.grad_type, row, hd, slice.first);
  const char* snap_slice = row_address(params.snap, params.snap_type, snap_row, hd, slice.first);
  LaneColumns<kColumns> grad, snapshot, acc;
  alignas(64) float grad_partials[kLanes];
  load_slice<kColumns, kFull>(params.grad_type, grad_row, slice.width, grad);
  load_snapshot_slice<kColumns, kFull>(params.snap_type, snap_slice, slice.width,
                                       params.scales ? params.scales + snap_row : nullptr,
                                       params.bank_type, snapshot);
  lane_partials(grad, snapshot, grad_partials);
  zero_lanes(acc);

  for (int32_t e = 0; e < group.size; ++e) {
    const Record& record = group.records[e];
    if (const Record* ahead = record_ahead(tile, group, e)) {
      prefetch_slice<true>(params.bank, params.bank_type, ahead->row, hd, slice);
      prefetch_slice<true>(params.grad, params.grad_type, ahead->row, hd, slice);
    }
    const int64_t token = group.first_token + record_token(record.word);
    LaneColumns<kColumns> x;
    load_slice<kColumns, kFull>(RowType::kFloat32,
                                row_address(params.d_u, RowType::kFloat32, token, hd, slice.first),
                                slice.width, x);
    add_scaled(record.scale, x, acc);
    const int64_t out = s * params.plane_stride + entry_index(group, record, params.num_writes);
    lane_partials(x, snapshot, effs.next());
    effs.push(params.out_eff + out, one_slice ? -params.beta[token] : 1.0f);
    std::memcpy(gdots.next(), grad_partials, sizeof(float) * LaneColumns<kColumns>::kActive);
    gdots.push(params.out_g + out, one_slice ? record.decay : 1.0f);
  }

  const float decay = group.records[group.size - 1].decay;
  for (int k = 0; k < kLaneColumns; ++k) {
    for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
      grad.part[k][l] = fused(grad.part[k][l], decay, acc.part[k][l]);
    }
  }
  store_slice<kColumns, kFull>(params.grad_type, grad, slice.width, grad_row);
  restore<kColumns, kFull>(params, row, snap_slice, slice, snapshot);
}

template <int kColumns, bool kFull>
SDM_HD void write_tile(const GxPa2Params& params, const RecordTile& tile, DotBatch& effs,
                       DotBatch& gdots) {
  int32_t ordinal = params.bpre ? ordinal_at(params, tile) : 0;
  const int32_t rows = params.snap_chunk_rows;
  for (RecordGroup group = first_group(tile); group.size > 0; group = next_group(tile, group)) {
    const uint32_t word = group.records[0].word;
    if (record_invalid(word)) {
      clear_outputs(params, tile, entry_index(group, group.records[0], params.num_writes));
      continue;
    }
    const int64_t snap_row =
        params.bpre ? dense_snapshot_row(tile.chunk, rows, row_of_ordinal(ordinal++, rows))
                    : entry_snapshot_row(params, tile.chunk, word);
    for (int32_t s = tile.first_slice; s < tile.end_slice; ++s) {
      write_group<kColumns, kFull>(params, tile, group, snap_row, s, effs, gdots);
    }
  }
  effs.flush();
  gdots.flush();
}

SDM_MULTIVERSION
void write(const GxPa2Params& params, const RecordTile& tile, DotBatch& effs, DotBatch& gdots) {
  with_slice_columns(params.hd, [&]<int kColumns, bool kFull>() SDM_INLINE_LAMBDA {
    write_tile<kColumns, kFull>(params, tile, effs, gdots);
  });
}

}  // namespace

void gx_pa2_host(const GxPa2Params& params) {
  const RecordTiles tiles(params.records, params.step, params.num_parallel, params.chunk_size,
                          params.num_writes, params.hd);
  const int64_t elements =
      int64_t{params.num_parallel} * params.chunk_size * params.num_writes * params.hd;
#pragma omp parallel if (elements > kSerialElements)
  {
    const FloatMode mode;
    DotBatch effs, gdots;
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < tiles.count(); ++unit) write(params, tiles[unit], effs, gdots);
  }
}

}  // namespace sdm
