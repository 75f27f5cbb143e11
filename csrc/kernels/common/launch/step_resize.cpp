// A step kernel's plan for another length, from its table: numbers and extents as step_kernel.cpp
// would fill and describe them for operands of so many steps.
#include <cstring>

#include "kernels/common/launch/step_kernel.h"
#include "kernels/common/launch/step_launch.h"
#include "kernels/common/math/ordered_math.h"

namespace sdm {
namespace {

using plancap::PlanResize;
using plancap::volume;

// A number of the block; 0 for one that the kernel has not.
int64_t load(const StepKernel& kernel, const PlanResize& plan, std::string_view name) {
  for (const StepRow& row : kernel.rows) {
    if (!row.is(name)) continue;
    int64_t value = 0;
    int32_t narrow = 0;
    const std::byte* from = plan.block().data() + row.field.offset;
    if (row.field.size == sizeof(value)) return std::memcpy(&value, from, sizeof(value)), value;
    return std::memcpy(&narrow, from, sizeof(narrow)), narrow;
  }
  return 0;
}

// The sizes of a call of the new length; the others were checked when the plan was made.
StepSizes resized_sizes(const StepKernel& kernel, const PlanResize& plan) {
  StepSizes sizes;
  sizes.num_parallel = load(kernel, plan, "num_parallel");
  sizes.chunk_size = load(kernel, plan, "chunk_size");
  sizes.num_writes = load(kernel, plan, "num_writes");
  sizes.num_reads = load(kernel, plan, "num_reads");
  sizes.hd = load(kernel, plan, "hd");
  sizes.chunks = plan.steps() * sizes.num_parallel;
  return sizes;
}

}  // namespace

void resize_step_plan(const StepKernel& kernel, PlanResize& plan) {
  // Check.
  StepSizes sizes = resized_sizes(kernel, plan);
  expect_num_parallel(kernel.name, sizes.chunks, sizes.num_parallel);

  // Fill.
  for (const StepRow& row : kernel.rows) {
    if (row.operand) continue;
    int64_t value;
    if (row.is("step")) {
      value = sizes.steps() - 1;
    } else if (row.is("plane_stride")) {
      value = plane_stride(kernel, sizes);
    } else if (row.is("num_tokens")) {
      value = plan.number("num_tokens").value_or(0);
      expect_num_tokens(kernel.name, value, sizes.steps(), sizes.chunk_size);
    } else {
      continue;
    }
    std::memcpy(plan.block().data() + row.field.offset, &value, row.field.size);
  }

  // Describe: shares of steps have their extents already.
  const int32_t slices = num_slices(static_cast<int32_t>(sizes.hd));
  if (slices == 1) return;
  for (const StepRow& row : kernel.rows) {
    if (row.form.form != Form::kPlanes) continue;
    const int64_t entries = sizes.chunks * sizes.chunk_entries(row.form.entries);
    plan.set_extent(row.field.name, volume({slices, entries, sizeof(float)}));
  }
}

}  // namespace sdm
