// What the checks of several kernels' parameter blocks have in common
// (plancap/format/param_view.h).
#pragma once
#include <limits>

#include "kernels/common/rows/row_types.h"
#include "plancap/format/param_view.h"

namespace sdm {

// The fields that every step kernel has.
template <typename Params>
void check_step_fields(const plancap::ParamView& view, const Params& params) {
  view.range("step", params.step, 0, std::numeric_limits<int32_t>::max());
  view.range("num_parallel", params.num_parallel, 1, std::numeric_limits<int32_t>::max());
  view.range("chunk_size", params.chunk_size, 1, 256);
  view.range("hd", params.hd, 1, 1 << 20);
}

// A bank or grad operand: whole rows of a type that rows may have. Returns how many.
uint64_t check_row_operand(const plancap::ParamView& view, const char* field,
                           const char* type_field, RowType type, int32_t hd,
                           plancap::Access access);

// Rows of a known type of which a step has `count`, the steps' rows one after the other.
void check_step_rows(const plancap::ParamView& view, const char* field, RowType type, int32_t hd,
                     plancap::Access access, int64_t count, int64_t step);

// grad and bank have the same rows.
void check_same_rows(const plancap::ParamView& view, uint64_t grad_rows, uint64_t bank_rows);

// One plane of floats per column slice; a step writes `entries` floats of each.
void check_plane_operand(const plancap::ParamView& view, const char* field, int64_t plane_stride,
                         int32_t hd, int64_t entries, int64_t step);

}  // namespace sdm
