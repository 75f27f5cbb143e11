#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/host_rows.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/host/slice_dispatch.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/records/record_tiles.h"
#include "kernels/common/records/snapshot_rows.h"
#include "kernels/step/fx_write/fx_write.h"

namespace sdm {
namespace {

// One group of writes, one slice: the old row kept (snap_row >= 0), the new one stored.
template <int kColumns, bool kFull>
SDM_HD void write_group(const FxWriteParams& params, const RecordTile& tile,
                        const RecordGroup& group, int64_t snap_row, int32_t s) {
  const int32_t hd = params.hd;
  const RowType type = params.bank_type;
  const ColumnSlice slice = column_slice(hd, s);
  char* row = row_address(params.bank, type, group.records[0].row, hd, slice.first);
  if (snap_row >= 0) {
    std::memcpy(row_address(params.snap, type, snap_row, hd, slice.first), row,
                row_bytes(type, kFull ? kColumns : slice.width));
  }
  LaneColumns<kColumns> old, acc;
  load_slice<kColumns, kFull>(type, row, slice.width, old);
  zero_lanes(acc);
  for (int32_t e = 0; e < group.size; ++e) {
    const Record& record = group.records[e];
    if (const Record* ahead = record_ahead(tile, group, e)) {
      prefetch_slice<true>(params.bank, type, ahead->row, hd, slice);
    }
    const int64_t token = group.first_token + record_token(record.word);
    LaneColumns<kColumns> delta;
    load_slice<kColumns, kFull>(
        RowType::kFloat32, row_address(params.delta, RowType::kFloat32, token, hd, slice.first),
        slice.width, delta);
    add_scaled(record.scale, delta, acc);
  }
  const float decay = group.records[group.size - 1].decay;
  for (int k = 0; k < kLaneColumns; ++k) {
    for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
      old.part[k][l] = fused(old.part[k][l], decay, acc.part[k][l]);
    }
  }
  store_slice<kColumns, kFull>(type, old, slice.width, row);
}

template <int kColumns, bool kFull>
SDM_HD void write_tile(const FxWriteParams& params, const RecordTile& tile) {
  const bool keeps = params.snap != nullptr;
  const int32_t rows = params.snap_chunk_rows;
  int32_t ordinal = keeps ? groups_before(params.bpre, tile.chunk, tile.entries, tile.begin) : 0;
  for (RecordGroup group = first_group(tile); group.size > 0; group = next_group(tile, group)) {
    if (record_invalid(group.records[0].word)) continue;
    const int64_t snap_row =
        keeps ? dense_snapshot_row(tile.chunk, rows, row_of_ordinal(ordinal++, rows)) : -1;
    for (int32_t s = tile.first_slice; s < tile.end_slice; ++s) {
      write_group<kColumns, kFull>(params, tile, group, snap_row, s);
    }
  }
}

SDM_MULTIVERSION
void write(const FxWriteParams& params, const RecordTile& tile) {
  with_slice_columns(params.hd, [&]<int kColumns, bool kFull>() SDM_INLINE_LAMBDA {
    write_tile<kColumns, kFull>(params, tile);
  });
}

}  // namespace

void fx_write_host(const FxWriteParams& params) {
  const RecordTiles tiles(params.updates, params.step, params.num_parallel, params.chunk_size,
                          params.num_writes, params.hd);
  const int64_t elements =
      int64_t{params.num_parallel} * params.chunk_size * params.num_writes * params.hd;
#pragma omp parallel if (elements > kSerialElements)
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < tiles.count(); ++unit) write(params, tiles[unit]);
  }
}

}  // namespace sdm
