#include "kernels/common/column_slices.h"
#include "kernels/common/float_mode.h"
#include "kernels/common/host_rows.h"
#include "kernels/common/lane_dots.h"
#include "kernels/common/multiversion.h"
#include "kernels/gx_gwr/gx_gwr.h"

namespace sdm {
namespace {

constexpr int32_t kPartSlices = 8;  // slices of one unit of work: 4 KiB of an f32 row
constexpr int32_t kRowsAhead = 4;   // rows prefetched before they are needed

// One token's rows, in the slices [first_slice, end_slice): d_dv's columns and the dots.
template <int kColumns>
SDM_HD void gather_token(const GxGwrParams& params, int64_t token, int32_t first_slice,
                         int32_t end_slice) {
  const int32_t hd = params.hd, writes = params.num_writes;
  const int32_t* slots = params.slots + token * writes;
  const float* pd = params.pd + token * writes;
  alignas(64) float acc[kPartSlices][kColumns];
  LaneColumns<kColumns> delta[kPartSlices];
  DotBatch dots;
  dots.clear();
  for (int32_t s = first_slice; s < end_slice; ++s) {
    const ColumnSlice slice = column_slice(hd, s);
    float* columns = acc[s - first_slice];
    load_f32_bf16<kColumns>(
        RowType::kFloat32,
        reinterpret_cast<const char*>(params.delta + row_offset(token, hd, slice.first)),
        slice.width, columns);
    to_lanes(columns, delta[s - first_slice]);
    std::memset(columns, 0, sizeof(acc[0]));
  }
  for (int32_t n = 0; n < writes; ++n) {
    for (int32_t s = first_slice; s < end_slice; ++s) {
      const ColumnSlice slice = column_slice(hd, s);
      alignas(64) float row[kColumns];
      load_f32_bf16<kColumns>(params.grad_type,
                              row_address(params.grad, params.grad_type, slots[n], hd, slice.first),
                              slice.width, row);
      float* columns = acc[s - first_slice];
      for (int32_t c = 0; c < kColumns; ++c) columns[c] = fused(pd[n], row[c], columns[c]);
      lane_partials(row, delta[s - first_slice], dots.next());
      dots.push(params.dpd + s * params.plane_stride + token * writes + n, 1.0f);
    }
  }
  dots.flush();
  for (int32_t s = first_slice; s < end_slice; ++s) {
    const ColumnSlice slice = column_slice(hd, s);
    std::memcpy(params.d_dv + row_offset(token, hd, slice.first), acc[s - first_slice],
                slice.width * sizeof(float));
  }
}

// A padding token gives 0 everywhere.
void clear_token(const GxGwrParams& params, int64_t token, int32_t first_slice, int32_t end_slice) {
  const int32_t first = column_slice(params.hd, first_slice).first;
  const ColumnSlice last = column_slice(params.hd, end_slice - 1);
  std::memset(params.d_dv + row_offset(token, params.hd, first), 0,
              (last.first + last.width - first) * sizeof(float));
  for (int32_t s = first_slice; s < end_slice; ++s) {
    std::memset(params.dpd + s * params.plane_stride + token * params.num_writes, 0,
                params.num_writes * sizeof(float));
  }
}

SDM_MULTIVERSION
void gather(const GxGwrParams& params, int64_t token, int32_t first_slice, int32_t end_slice) {
  if (params.hd <= 64) {
    gather_token<64>(params, token, first_slice, end_slice);
  } else {
    gather_token<128>(params, token, first_slice, end_slice);
  }
}

}  // namespace

void gx_gwr_host(const GxGwrParams& params) {
  const int64_t first_token = int64_t{params.step} * params.num_parallel * params.chunk_size;
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int32_t slices = num_slices(params.hd);
  const int32_t parts = (slices + kPartSlices - 1) / kPartSlices;
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t unit = 0; unit < tokens * parts; ++unit) {
      const int64_t token = first_token + unit / parts;
      const int32_t first_slice = static_cast<int32_t>(unit % parts) * kPartSlices;
      const int32_t end_slice =
          slices - first_slice < kPartSlices ? slices : first_slice + kPartSlices;
      const int64_t place = int64_t{params.step} * params.chunk_size + token % params.chunk_size;
      if (place >= params.num_tokens) {
        clear_token(params, token, first_slice, end_slice);
      } else {
        gather(params, token, first_slice, end_slice);
      }
    }
  }
}

}  // namespace sdm
