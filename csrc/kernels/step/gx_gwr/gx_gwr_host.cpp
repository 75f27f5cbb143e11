#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/host_rows.h"
#include "kernels/common/host/lane_dots.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/host/slice_dispatch.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/records/chunk_tokens.h"
#include "kernels/step/gx_gwr/gx_gwr.h"

namespace sdm {
namespace {

constexpr int32_t kPartSlices = 8;  // slices of one unit of work: 4 KiB of an f32 row

// One unit of work: a token's columns in the slices [first_slice, end_slice).
struct Unit {
  int64_t token;
  int64_t slots_left;  // slots from this token's first to the step's last
  int32_t first_slice, end_slice;
};

// `count` writes from the n-th on, one slice: a batch of dots, with d_dv's columns in registers.
template <int kColumns, bool kFull>
SDM_HD void gather_batch(const GxGwrParams& params, const Unit& unit, int32_t s, int32_t n,
                         int32_t count, const LaneColumns<kColumns>& delta,
                         LaneColumns<kColumns>& d_dv, BatchPartials& partials) {
  const ColumnSlice slice = column_slice(params.hd, s);
  const int64_t first = unit.token * params.num_writes + n;
  LaneColumns<kColumns> acc = d_dv;
  for (int32_t i = 0; i < count; ++i) {
    if (n + i + kDotBatch < unit.slots_left) {
      prefetch_slice<false>(params.grad, params.grad_type, params.slots[first + i + kDotBatch],
                            params.hd, slice);
    }
    const int32_t slot = params.slots[first + i];
    LaneColumns<kColumns> row;
    if (slot < 0) {
      zero_lanes(row);
    } else {
      load_slice<kColumns, kFull>(
          params.grad_type,
          row_address(params.grad, params.grad_type, slot, params.hd, slice.first), slice.width,
          row);
    }
    add_scaled(params.pd[first + i], row, acc);
    lane_partials(row, delta, partials.of[i]);
  }
  d_dv = acc;
  alignas(64) float dots[kDotBatch];
  lane_trees(partials, dots);
  std::memcpy(params.dpd + s * params.plane_stride + first, dots, count * sizeof(float));
}

template <int kColumns, bool kFull>
SDM_HD void gather_token(const GxGwrParams& params, const Unit& unit, BatchPartials& partials) {
  const int32_t hd = params.hd;
  LaneColumns<kColumns> delta[kPartSlices], d_dv[kPartSlices];
  for (int32_t s = unit.first_slice; s < unit.end_slice; ++s) {
    const ColumnSlice slice = column_slice(hd, s);
    load_slice<kColumns, kFull>(
        RowType::kFloat32,
        row_address(params.delta, RowType::kFloat32, unit.token, hd, slice.first), slice.width,
        delta[s - unit.first_slice]);
    zero_lanes(d_dv[s - unit.first_slice]);
  }
  for (int32_t n = 0; n < params.num_writes; n += kDotBatch) {
    const int32_t left = params.num_writes - n;
    for (int32_t s = unit.first_slice; s < unit.end_slice; ++s) {
      gather_batch<kColumns, kFull>(params, unit, s, n, left < kDotBatch ? left : kDotBatch,
                                    delta[s - unit.first_slice], d_dv[s - unit.first_slice],
                                    partials);
    }
  }
  for (int32_t s = unit.first_slice; s < unit.end_slice; ++s) {
    const ColumnSlice slice = column_slice(hd, s);
    store_slice<kColumns, kFull>(
        RowType::kFloat32, d_dv[s - unit.first_slice], slice.width,
        row_address(params.d_dv, RowType::kFloat32, unit.token, hd, slice.first));
  }
}

// A padding token gives 0 everywhere.
void clear_token(const GxGwrParams& params, const Unit& unit) {
  const int32_t first = column_slice(params.hd, unit.first_slice).first;
  const ColumnSlice last = column_slice(params.hd, unit.end_slice - 1);
  std::memset(row_address(params.d_dv, RowType::kFloat32, unit.token, params.hd, first), 0,
              (last.first + last.width - first) * sizeof(float));
  for (int32_t s = unit.first_slice; s < unit.end_slice; ++s) {
    std::memset(params.dpd + s * params.plane_stride + unit.token * params.num_writes, 0,
                params.num_writes * sizeof(float));
  }
}

SDM_MULTIVERSION
void gather(const GxGwrParams& params, const Unit& unit, BatchPartials& partials) {
  with_slice_columns(params.hd, [&]<int kColumns, bool kFull>() SDM_INLINE_LAMBDA {
    gather_token<kColumns, kFull>(params, unit, partials);
  });
}

}  // namespace

void gx_gwr_host(const GxGwrParams& params) {
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int64_t first_token = params.step * tokens;
  const int32_t slices = num_slices(params.hd);
  const int32_t parts = (slices + kPartSlices - 1) / kPartSlices;
  const int64_t elements = tokens * params.num_writes * params.hd;
#pragma omp parallel if (elements > kSerialElements)
  {
    const FloatMode mode;
    BatchPartials partials;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < tokens * parts; ++i) {
      const int64_t t = i / parts;
      const int32_t slice = static_cast<int32_t>(i % parts) * kPartSlices;
      const Unit unit{first_token + t, (tokens - t) * params.num_writes, slice,
                      slices - slice < kPartSlices ? slices : slice + kPartSlices};
      const ChunkTokens chunk = chunk_tokens(params, params.step, t / params.chunk_size);
      if (chunk.real(chunk.place(t % params.chunk_size))) {
        gather(params, unit, partials);
      } else {
        clear_token(params, unit);
      }
    }
  }
}

}  // namespace sdm
