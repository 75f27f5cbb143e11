#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/host_rows.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/host/slice_dispatch.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/common/records/chunk_tokens.h"
#include "kernels/step/fx_read/fx_read.h"

namespace sdm {
namespace {

constexpr int32_t kPartSlices = 8;  // slices of one unit of work: 4 KiB of an f32 row
constexpr int32_t kBatch = 16;      // rows added to one slice before the next slice's turn

// One unit of work: a token's columns in the slices [first_slice, end_slice).
struct Unit {
  int64_t token;
  const RowWeight* entries;
  int64_t entries_left;  // from this token's first to the step's last
  int32_t first_slice, end_slice;
};

// `count` of the token's entries from the n-th on, one slice.
template <int kColumns, bool kFull>
SDM_HD void add_batch(const FxReadParams& params, const Unit& unit, int32_t s, int32_t n,
                      int32_t count, LaneColumns<kColumns>& sum) {
  const ColumnSlice slice = column_slice(params.hd, s);
  LaneColumns<kColumns> acc = sum;
  for (int32_t i = n; i < n + count; ++i) {
    if (i + kBatch < unit.entries_left) {
      prefetch_slice<false>(params.bank, params.bank_type, unit.entries[i + kBatch].row, params.hd,
                            slice);
    }
    const RowWeight entry = unit.entries[i];
    if (entry.row < 0) continue;  // a row of zeros, times -0
    LaneColumns<kColumns> row;
    load_slice<kColumns, kFull>(
        params.bank_type,
        row_address(params.bank, params.bank_type, entry.row, params.hd, slice.first), slice.width,
        row);
    add_scaled(entry.weight, row, acc);
  }
  sum = acc;
}

// Entries [begin, end) in order, every slice of the unit.
template <int kColumns, bool kFull>
SDM_HD void add_entries(const FxReadParams& params, const Unit& unit, int32_t begin, int32_t end,
                        LaneColumns<kColumns>* sums) {
  for (int32_t n = begin; n < end; n += kBatch) {
    const int32_t count = end - n < kBatch ? end - n : kBatch;
    for (int32_t s = unit.first_slice; s < unit.end_slice; ++s) {
      add_batch<kColumns, kFull>(params, unit, s, n, count, sums[s - unit.first_slice]);
    }
  }
}

template <int kColumns, bool kFull>
SDM_HD void store_sums(const FxReadParams& params, const Unit& unit,
                       const LaneColumns<kColumns>* sums, float* rows) {
  for (int32_t s = unit.first_slice; s < unit.end_slice; ++s) {
    const ColumnSlice slice = column_slice(params.hd, s);
    store_slice<kColumns, kFull>(
        RowType::kFloat32, sums[s - unit.first_slice], slice.width,
        row_address(rows, RowType::kFloat32, unit.token, params.hd, slice.first));
  }
}

template <int kColumns, bool kFull>
SDM_HD void read_token(const FxReadParams& params, const Unit& unit) {
  LaneColumns<kColumns> sums[kPartSlices];
  for (int32_t s = unit.first_slice; s < unit.end_slice; ++s) {
    const ColumnSlice slice = column_slice(params.hd, s);
    load_slice<kColumns, kFull>(
        params.bank_type,
        row_address(params.v, params.bank_type, unit.token, params.hd, slice.first), slice.width,
        sums[s - unit.first_slice]);
  }
  const int32_t entries = params.num_writes + params.num_reads;
  add_entries<kColumns, kFull>(params, unit, 0, params.num_writes, sums);
  store_sums<kColumns, kFull>(params, unit, sums, params.residual);
  for (int32_t s = unit.first_slice; s < unit.end_slice; ++s) {
    zero_lanes(sums[s - unit.first_slice]);
  }
  add_entries<kColumns, kFull>(params, unit, params.num_writes, entries, sums);
  store_sums<kColumns, kFull>(params, unit, sums, params.reading);
}

// A padding token gives 0 everywhere.
void clear_token(const FxReadParams& params, const Unit& unit) {
  const int32_t first = column_slice(params.hd, unit.first_slice).first;
  const ColumnSlice last = column_slice(params.hd, unit.end_slice - 1);
  const size_t bytes = (last.first + last.width - first) * sizeof(float);
  for (float* rows : {params.residual, params.reading}) {
    std::memset(row_address(rows, RowType::kFloat32, unit.token, params.hd, first), 0, bytes);
  }
}

SDM_MULTIVERSION
void read(const FxReadParams& params, const Unit& unit) {
  with_slice_columns(params.hd, [&]<int kColumns, bool kFull>() SDM_INLINE_LAMBDA {
    read_token<kColumns, kFull>(params, unit);
  });
}

}  // namespace

void fx_read_host(const FxReadParams& params) {
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int64_t first_token = params.step * tokens;
  const int32_t entries = params.num_writes + params.num_reads;
  const int32_t slices = num_slices(params.hd);
  const int32_t parts = (slices + kPartSlices - 1) / kPartSlices;
  const int64_t elements = tokens * entries * params.hd;
#pragma omp parallel if (elements > kSerialElements)
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < tokens * parts; ++i) {
      const int64_t t = i / parts, token = first_token + t;
      const int32_t slice = static_cast<int32_t>(i % parts) * kPartSlices;
      const Unit unit{token, params.row_weights + token * entries, (tokens - t) * entries, slice,
                      slices - slice < kPartSlices ? slices : slice + kPartSlices};
      const ChunkTokens chunk = chunk_tokens(params, params.step, t / params.chunk_size);
      if (chunk.real(chunk.place(t % params.chunk_size))) {
        read(params, unit);
      } else {
        clear_token(params, unit);
      }
    }
  }
}

}  // namespace sdm
