#include "kernels/common/launch/plan_checks.h"

#include "kernels/common/host/host_rows.h"
#include "kernels/common/math/ordered_math.h"
#include "plancap/base/error.h"
#include "plancap/format/dtypes.h"

namespace sdm {

using plancap::Access;
using plancap::ParamView;

namespace {

Dtype row_dtype(RowType type) {
  return type == RowType::kFloat32 ? Dtype::kFloat32 : Dtype::kBFloat16;
}

}  // namespace

uint64_t check_row_operand(const ParamView& view, const char* field, const char* type_field,
                           RowType type, int32_t hd, Access access) {
  view.range(type_field, int64_t{static_cast<int32_t>(type)},
             int64_t{static_cast<int32_t>(RowType::kFloat32)},
             int64_t{static_cast<int32_t>(RowType::kBFloat16)});
  view.dtype(field, row_dtype(type));
  const auto element = static_cast<uint32_t>(row_bytes(type, 1));
  const auto row = static_cast<uint64_t>(row_bytes(type, hd));
  view.reach_bytes(field, access, element, row);
  view.expect(view.extent(field) % row == 0, field, cat("whole rows of ", row, " bytes"),
              cat("an extent of ", view.extent(field)));
  return view.extent(field) / row;
}

void check_step_rows(const ParamView& view, const char* field, RowType type, int32_t hd,
                     Access access, int64_t count, int64_t step) {
  view.dtype(field, row_dtype(type));
  const uint64_t bytes = plancap::volume({count, row_bytes(type, hd)});
  view.share_bytes(field, access, static_cast<uint32_t>(row_bytes(type, 1)), bytes, bytes, step);
}

void check_same_rows(const ParamView& view, uint64_t grad_rows, uint64_t bank_rows) {
  if (grad_rows == bank_rows) return;
  view.expect(false, "grad", cat(bank_rows, " rows, as the bank has"), std::to_string(grad_rows));
}

void check_plane_operand(const ParamView& view, const char* field, int64_t plane_stride, int32_t hd,
                         int64_t entries, int64_t step) {
  const int32_t slices = num_slices(hd);
  if (slices == 1) return view.share<float>(field, Access::kWrite, entries, step);
  const uint64_t written = plancap::volume({step + 1, entries});
  view.expect(plane_stride >= 0 && static_cast<uint64_t>(plane_stride) >= written, "plane_stride",
              cat("at least ", written), std::to_string(plane_stride));
  view.reach<float>(field, Access::kWrite, plancap::volume({slices, plane_stride}));
}

}  // namespace sdm
