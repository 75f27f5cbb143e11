#include "kernels/common/float_mode.h"
#include "kernels/common/host_rows.h"
#include "kernels/common/lane_dots.h"
#include "kernels/common/multiversion.h"
#include "kernels/common/record_tiles.h"
#include "kernels/gx_pa2/gx_pa2.h"
#include "kernels/gx_pa2/snapshot_rows.h"

namespace sdm {
namespace {

// Valid FIRSTs of the chunk before the tile: a tile starts where a block of bpre does.
static_assert(RecordTiles::kPositions % 32 == 0);
SDM_HD int32_t ordinal_at(const GxPa2Params& params, const RecordTile& tile) {
  const int32_t blocks = (tile.entries + 31) / 32 + 1;
  return params.bpre[tile.chunk * blocks + tile.begin / 32];
}

SDM_HD void clear_outputs(const GxPa2Params& params, const RecordTile& tile, int64_t entry) {
  for (int32_t s = tile.first_slice; s < tile.end_slice; ++s) {
    params.out_eff[s * params.plane_stride + entry] = 0.0f;
    params.out_g[s * params.plane_stride + entry] = 0.0f;
  }
}

// The snapshot's columns as f32 values that the bank's type holds exactly.
template <int kColumns>
SDM_HD void load_snapshot(const GxPa2Params& params, int64_t snap_row, ColumnSlice slice,
                          float* to) {
  const RowType type = params.snap_type;
  const char* from = row_address(params.snap, type, snap_row, params.hd, slice.first);
  if (type == RowType::kFloat32 || type == RowType::kBFloat16) {
    load_f32_bf16<kColumns>(type, from, slice.width, to);
  } else {
    load_quantized<kColumns>(type, from, slice.width, params.scales[snap_row], params.bank_type,
                             to);
  }
}

// The bank row becomes the snapshot row: its bits, or its decoded values.
template <int kColumns>
SDM_HD void restore(const GxPa2Params& params, int64_t row, int64_t snap_row, ColumnSlice slice,
                    const float* snapshot) {
  const RowType type = params.bank_type;
  char* to = row_address(params.bank, type, row, params.hd, slice.first);
  if (type == params.snap_type) {
    std::memcpy(to, row_address(params.snap, type, snap_row, params.hd, slice.first),
                row_bytes(type, slice.width));
  } else {
    store_f32_bf16<kColumns>(type, snapshot, slice.width, to);
  }
}

// One group of writes, one slice.
template <int kColumns>
SDM_HD void write_group(const GxPa2Params& params, const RecordGroup& group, int64_t snap_row,
                        int32_t s, DotBatch& effs, DotBatch& gdots) {
  const int32_t hd = params.hd;
  const ColumnSlice slice = column_slice(hd, s);
  const bool one_slice = num_slices(hd) == 1;
  const Record& first = group.records[0];
  char* grad_row = row_address(params.grad, params.grad_type, first.row, hd, slice.first);
  alignas(64) float grad[kColumns], snapshot[kColumns], acc[kColumns] = {};
  alignas(64) float grad_partials[kLanes];
  LaneColumns<kColumns> snapshot_lanes;
  load_f32_bf16<kColumns>(params.grad_type, grad_row, slice.width, grad);
  load_snapshot<kColumns>(params, snap_row, slice, snapshot);
  to_lanes(snapshot, snapshot_lanes);
  lane_partials(grad, snapshot_lanes, grad_partials);

  for (int32_t e = 0; e < group.size; ++e) {
    const Record& record = group.records[e];
    const int64_t token = group.first_token + record_token(record.word);
    alignas(64) float padded[kColumns];
    const float* x = token_columns<kColumns>(params.d_u, token, hd, slice, padded);
    for (int32_t c = 0; c < kColumns; ++c) acc[c] = fused(record.scale, x[c], acc[c]);
    const int64_t out = s * params.plane_stride + entry_index(group, record, params.num_writes);
    lane_partials(x, snapshot_lanes, effs.next());
    effs.push(params.out_eff + out, one_slice ? -params.beta[token] : 1.0f);
    std::memcpy(gdots.next(), grad_partials, sizeof(float) * LaneColumns<kColumns>::kActive);
    gdots.push(params.out_g + out, one_slice ? record.decay : 1.0f);
  }

  const float decay = group.records[group.size - 1].decay;
  for (int32_t c = 0; c < kColumns; ++c) grad[c] = fused(grad[c], decay, acc[c]);
  store_f32_bf16<kColumns>(params.grad_type, grad, slice.width, grad_row);
  restore<kColumns>(params, first.row, snap_row, slice, snapshot);
}

template <int kColumns>
SDM_HD void write_tile(const GxPa2Params& params, const RecordTile& tile) {
  DotBatch effs, gdots;
  effs.clear();
  gdots.clear();
  int32_t ordinal = params.bpre ? ordinal_at(params, tile) : 0;
  for (RecordGroup group = first_group(tile); group.size > 0; group = next_group(tile, group)) {
    const uint32_t word = group.records[0].word;
    if (record_invalid(word)) {
      clear_outputs(params, tile, entry_index(group, group.records[0], params.num_writes));
      continue;
    }
    const int64_t snap_row = params.bpre ? dense_snapshot_row(params, tile.chunk, ordinal++)
                                         : entry_snapshot_row(params, tile.chunk, word);
    for (int32_t s = tile.first_slice; s < tile.end_slice; ++s) {
      write_group<kColumns>(params, group, snap_row, s, effs, gdots);
    }
  }
  effs.flush();
  gdots.flush();
}

SDM_MULTIVERSION
void write(const GxPa2Params& params, const RecordTile& tile) {
  if (params.hd <= 64) {
    write_tile<64>(params, tile);
  } else {
    write_tile<128>(params, tile);
  }
}

}  // namespace

void gx_pa2_host(const GxPa2Params& params) {
  const RecordTiles tiles(params.records, params.step, params.num_parallel, params.chunk_size,
                          params.num_writes, params.hd);
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < tiles.count(); ++unit) write(params, tiles[unit]);
  }
}

}  // namespace sdm
