#include "kernels/common/column_slices.h"
#include "kernels/common/float_mode.h"
#include "kernels/common/host_rows.h"
#include "kernels/common/lane_dots.h"
#include "kernels/common/multiversion.h"
#include "kernels/common/record_tiles.h"
#include "kernels/gx_gds/gx_gds.h"

namespace sdm {
namespace {

// One group of reads, one slice: its dots, and the readings' gradient added to its grad row.
template <int kColumns>
SDM_HD void read_group(const GxGdsParams& params, const RecordGroup& group, int32_t s,
                       DotBatch& dots) {
  const int32_t hd = params.hd;
  const ColumnSlice slice = column_slice(hd, s);
  const int32_t row = group.records[0].row;
  alignas(64) float columns[kColumns], acc[kColumns] = {};
  LaneColumns<kColumns> bank;
  load_f32_bf16<kColumns>(params.bank_type,
                          row_address(params.bank, params.bank_type, row, hd, slice.first),
                          slice.width, columns);
  to_lanes(columns, bank);
  for (int32_t e = 0; e < group.size; ++e) {
    const Record& record = group.records[e];
    alignas(64) float padded[kColumns];
    const float* gy = token_columns<kColumns>(
        params.gy, group.first_token + record_token(record.word), hd, slice, padded);
    for (int32_t c = 0; c < kColumns; ++c) acc[c] = fused(record.scale, gy[c], acc[c]);
    lane_partials(gy, bank, dots.next());
    dots.push(params.dq + s * params.plane_stride + entry_index(group, record, params.num_reads),
              1.0f);
  }
  char* grad_row = row_address(params.grad, params.grad_type, row, hd, slice.first);
  load_f32_bf16<kColumns>(params.grad_type, grad_row, slice.width, columns);
  for (int32_t c = 0; c < kColumns; ++c) columns[c] = plus(columns[c], acc[c]);
  store_f32_bf16<kColumns>(params.grad_type, columns, slice.width, grad_row);
}

template <int kColumns>
SDM_HD void read_tile(const GxGdsParams& params, const RecordTile& tile) {
  DotBatch dots;
  dots.clear();
  for (RecordGroup group = first_group(tile); group.size > 0; group = next_group(tile, group)) {
    for (int32_t s = tile.first_slice; s < tile.end_slice; ++s) {
      if (record_invalid(group.records[0].word)) {
        params
            .dq[s * params.plane_stride + entry_index(group, group.records[0], params.num_reads)] =
            0.0f;
      } else {
        read_group<kColumns>(params, group, s, dots);
      }
    }
  }
  dots.flush();
}

SDM_MULTIVERSION
void read(const GxGdsParams& params, const RecordTile& tile) {
  if (params.hd <= 64) {
    read_tile<64>(params, tile);
  } else {
    read_tile<128>(params, tile);
  }
}

}  // namespace

void gx_gds_host(const GxGdsParams& params) {
  const RecordTiles tiles(params.records, params.step, params.num_parallel, params.chunk_size,
                          params.num_reads, params.hd);
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < tiles.count(); ++unit) read(params, tiles[unit]);
  }
}

}  // namespace sdm
