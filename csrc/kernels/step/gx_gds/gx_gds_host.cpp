#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/host_rows.h"
#include "kernels/common/host/lane_dots.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/host/slice_dispatch.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/records/record_tiles.h"
#include "kernels/step/gx_gds/gx_gds.h"

namespace sdm {
namespace {

// One group of reads, one slice: its dots, and the readings' gradient added to its grad row.
template <int kColumns, bool kFull>
SDM_HD void read_group(const GxGdsParams& params, const RecordTile& tile, const RecordGroup& group,
                       int32_t s, DotBatch& dots) {
  const int32_t hd = params.hd;
  const ColumnSlice slice = column_slice(hd, s);
  const int32_t row = group.records[0].row;
  LaneColumns<kColumns> bank, acc, grad;
  load_slice<kColumns, kFull>(params.bank_type,
                              row_address(params.bank, params.bank_type, row, hd, slice.first),
                              slice.width, bank);
  zero_lanes(acc);
  for (int32_t e = 0; e < group.size; ++e) {
    const Record& record = group.records[e];
    if (const Record* ahead = record_ahead(tile, group, e)) {
      prefetch_slice<false>(params.bank, params.bank_type, ahead->row, hd, slice);
      prefetch_slice<true>(params.grad, params.grad_type, ahead->row, hd, slice);
    }
    const int64_t token = group.first_token + record_token(record.word);
    LaneColumns<kColumns> gy;
    load_slice<kColumns, kFull>(RowType::kFloat32,
                                row_address(params.gy, RowType::kFloat32, token, hd, slice.first),
                                slice.width, gy);
    add_scaled(record.scale, gy, acc);
    lane_partials(gy, bank, dots.next());
    dots.push(params.dq + s * params.plane_stride + entry_index(group, record, params.num_reads),
              1.0f);
  }
  char* grad_row = row_address(params.grad, params.grad_type, row, hd, slice.first);
  load_slice<kColumns, kFull>(params.grad_type, grad_row, slice.width, grad);
  for (int k = 0; k < kLaneColumns; ++k) {
    for (int l = 0; l < LaneColumns<kColumns>::kActive; ++l) {
      grad.part[k][l] = plus(grad.part[k][l], acc.part[k][l]);
    }
  }
  store_slice<kColumns, kFull>(params.grad_type, grad, slice.width, grad_row);
}

template <int kColumns, bool kFull>
SDM_HD void read_tile(const GxGdsParams& params, const RecordTile& tile, DotBatch& dots) {
  for (RecordGroup group = first_group(tile); group.size > 0; group = next_group(tile, group)) {
    for (int32_t s = tile.first_slice; s < tile.end_slice; ++s) {
      if (record_invalid(group.records[0].word)) {
        params
            .dq[s * params.plane_stride + entry_index(group, group.records[0], params.num_reads)] =
            0.0f;
      } else {
        read_group<kColumns, kFull>(params, tile, group, s, dots);
      }
    }
  }
  dots.flush();
}

SDM_MULTIVERSION
void read(const GxGdsParams& params, const RecordTile& tile, DotBatch& dots) {
  with_slice_columns(params.hd, [&]<int kColumns, bool kFull>() SDM_INLINE_LAMBDA {
    read_tile<kColumns, kFull>(params, tile, dots);
  });
}

}  // namespace

void gx_gds_host(const GxGdsParams& params) {
  const RecordTiles tiles(params.records, params.step, params.num_parallel, params.chunk_size,
                          params.num_reads, params.hd);
  const int64_t elements =
      int64_t{params.num_parallel} * params.chunk_size * params.num_reads * params.hd;
#pragma omp parallel if (elements > kSerialElements)
  {
    const FloatMode mode;
    DotBatch dots;
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < tiles.count(); ++unit) read(params, tiles[unit], dots);
  }
}

}  // namespace sdm
