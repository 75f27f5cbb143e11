// The check of a step kernel's plan, from its table: do the block's numbers stay inside what the
// relocations grant?
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/common/launch/row_checks.h"
#include "kernels/common/launch/step_kernel.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/rows/row_bits.h"
#include "plancap/base/error.h"

namespace sdm {
namespace {

using plancap::ParamView;
using plancap::volume;

constexpr int64_t kMostInt32 = std::numeric_limits<int32_t>::max();

// The numbers of a block by name.
class BlockNumbers {
 public:
  BlockNumbers(const StepKernel& kernel, const ParamView& view) : kernel_(kernel), view_(view) {}

  // 0 for a number that the kernel has not.
  int64_t at(std::string_view name) const {
    const StepRow* row = find(name);
    return row ? load(*row) : 0;
  }

  // Throws kPlan for a number of this name outside of a range.
  void expect(const char* name, int64_t lowest, int64_t highest) const {
    if (const StepRow* row = find(name)) view_.range(name, load(*row), lowest, highest);
  }

 private:
  const StepRow* find(std::string_view name) const {
    const auto row = std::ranges::find_if(kernel_.rows, [&](const auto& r) { return r.is(name); });
    return row == kernel_.rows.end() ? nullptr : &*row;
  }

  int64_t load(const StepRow& row) const {
    const std::byte* from = view_.block().data() + row.field.offset;
    return row.field.size == sizeof(int32_t) ? load_as<int32_t>(from) : load_as<int64_t>(from);
  }

  template <typename T>
  static int64_t load_as(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }

  const StepKernel& kernel_;
  const ParamView& view_;
};

// Of a step: its sizes, with P for N, and its number.
struct StepPart {
  const ParamView& view;
  StepSizes sizes;
  int64_t step;
  int64_t plane_stride;
};

StepPart checked_numbers(const StepKernel& kernel, const ParamView& view) {
  const BlockNumbers numbers(kernel, view);
  numbers.expect("step", 0, kMostInt32);
  numbers.expect("num_parallel", 1, kMostInt32);
  numbers.expect("chunk_size", 1, 256);
  numbers.expect("hd", 1, 1 << 20);
  numbers.expect("num_writes", 1, 256);
  numbers.expect("num_reads", 1, 256);
  numbers.expect("reserved", 0, 0);
  StepSizes sizes;
  sizes.num_parallel = sizes.chunks = numbers.at("num_parallel");
  sizes.chunk_size = numbers.at("chunk_size");
  sizes.num_writes = numbers.at("num_writes");
  sizes.num_reads = numbers.at("num_reads");
  sizes.snap_chunk_rows = numbers.at("snap_chunk_rows");
  sizes.hd = numbers.at("hd");
  sizes.bank_type = static_cast<RowType>(numbers.at("bank_type"));
  sizes.grad_type = static_cast<RowType>(numbers.at("grad_type"));
  return {view, sizes, numbers.at("step"), numbers.at("plane_stride")};
}

// Bank or grad rows: whole ones of a type that they may have. Returns how many.
uint64_t check_rows(const StepPart& part, const StepRow& row) {
  const char* field = row.field.name;
  const bool grad = row.is("grad");
  const RowType type = grad ? part.sizes.grad_type : part.sizes.bank_type;
  check_plain_type(part.view, grad ? "grad_type" : "bank_type", type);
  part.view.dtype(field, row_dtype(type));
  const auto element = static_cast<uint32_t>(row_bytes(type, 1));
  const auto bytes = static_cast<uint64_t>(row_bytes(type, part.sizes.hd));
  part.view.reach_bytes(field, row.access, element, bytes);
  part.view.expect(part.view.extent(field) % bytes == 0, field,
                   cat("whole rows of ", bytes, " bytes"),
                   cat("an extent of ", part.view.extent(field)));
  return part.view.extent(field) / bytes;
}

// One plane of floats for each column slice; a step writes its entries of each.
void check_planes(const StepPart& part, const StepRow& row) {
  const StepExtent extent = extent_of(row, part.sizes);
  const int64_t entries = extent.dims[0] * extent.dims[1];
  const int32_t slices = num_slices(static_cast<int32_t>(part.sizes.hd));
  if (slices == 1) return part.view.share<float>(row.field.name, row.access, entries, part.step);
  const uint64_t written = volume({part.step + 1, entries});
  const int64_t stride = part.plane_stride;
  part.view.expect(stride >= 0 && static_cast<uint64_t>(stride) >= written, "plane_stride",
                   cat("at least ", written), std::to_string(stride));
  part.view.reach<float>(row.field.name, row.access, volume({slices, stride}));
}

// A share of the operand for each step, one after the other.
void check_share(const StepPart& part, const StepRow& row) {
  const auto& [dtype, dims, align] = extent_of(row, part.sizes);
  const bool of_bank =
      row.form.form == Form::kBankTokenRows || row.form.form == Form::kSnapshotRows;
  if (of_bank) part.view.dtype(row.field.name, dtype);
  const uint64_t bytes = volume({dims[0], dims[1], dims[2], dtype_bytes(dtype)});
  part.view.share_bytes(row.field.name, row.access, align, bytes, bytes, part.step);
}

void check_operand(const StepPart& part, const StepRow& row) {
  switch (row.form.form) {
    case Form::kOdd:
    case Form::kBankRows:
    case Form::kGradRows:
      return;
    case Form::kPlanes:
      return check_planes(part, row);
    default:
      return check_share(part, row);
  }
}

}  // namespace

void check_step_plan(const StepKernel& kernel, const ParamView& view) {
  const StepPart part = checked_numbers(kernel, view);
  uint64_t grad_rows = 0, bank_rows = 0;
  for (const StepRow& row : kernel.rows) {
    if (!row.operand) continue;
    if (row.form.form == Form::kGradRows) grad_rows = check_rows(part, row);
    if (row.form.form == Form::kBankRows) bank_rows = check_rows(part, row);
  }
  view.expect(grad_rows == 0 || grad_rows == bank_rows, "grad",
              cat(bank_rows, " rows, as the bank has"), std::to_string(grad_rows));
  if (kernel.check_rest) kernel.check_rest(view);
  for (const StepRow& row : kernel.rows) {
    if (row.operand && !(row.optional && !view.has(row.field.name))) check_operand(part, row);
  }
}

}  // namespace sdm
