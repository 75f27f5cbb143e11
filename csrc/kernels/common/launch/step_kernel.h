// One launch of a step kernel from its table: check, fill, describe, choose, launch.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kernels/common/launch/step_geometry.h"
#include "kernels/common/launch/step_table.h"
#include "kernels/common/rows/row_formats.h"
#include "plancap/capture/sink.h"
#include "plancap/format/param_view.h"
#include "plancap/format/plan_resize.h"

namespace sdm {

using NamedNumber = std::pair<std::string, int64_t>;
using NamedWord = std::pair<std::string, std::string>;

// A call's operands, numbers and words by name; what is optional may be missing.
struct StepArgs {
  std::span<const plancap::NamedTensor> operands;
  std::span<const NamedNumber> numbers;
  std::span<const NamedWord> words;
  int64_t ti = 0;                // the step of this launch
  std::optional<int64_t> steps;  // steps a plan covers; none: only ti
  bool pdl = false;

  const TensorRef* find(std::string_view operand) const;
  const TensorRef& at(std::string_view operand) const;  // kInternal where it is missing
  std::optional<int64_t> number(std::string_view name) const;
  const std::string* word(std::string_view name) const;  // null where it is missing
};

// What a call's numbers and operands, or a plan's block, say of its sizes.
struct StepSizes {
  int64_t chunks = 0;  // N
  int64_t num_parallel = 0;
  int64_t chunk_size = 0;
  int64_t num_writes = 0;  // of a token; 0 for a kernel that has none
  int64_t num_reads = 0;
  int64_t num_tokens = 0;
  int64_t snap_chunk_rows = 0;  // of a chunk's dense snapshot
  int64_t hd = 0;
  RowType bank_type = RowType::kFloat32;
  RowType grad_type = RowType::kFloat32;

  int64_t entries(Entries which) const;  // of a token
  int64_t chunk_entries(Entries which) const { return chunk_size * entries(which); }
  int64_t steps() const { return chunks / num_parallel; }
};

// The elements of an operand: those of one slice's plane for kPlanes, none for rows that any step
// may touch. In the sizes of one step, N = P, those of a step.
struct StepExtent {
  Dtype dtype;
  std::array<int64_t, 3> dims;
  uint32_t align;  // of its address, in bytes
};
StepExtent extent_of(const StepRow& row, const StepSizes& sizes);

inline Dtype row_dtype(RowType type) {
  return with_plain_format(type, [](auto format) { return format.kDtype; });
}

// A launch as far as the table describes it, for a kernel's own function to complete: what it says
// of Form::kOdd, and of operands that belong together.
struct StepLaunch {
  const StepArgs& args;
  const StepSizes& sizes;
  void* params;
  std::span<plancap::Operand> operands;

  plancap::Operand& operand(std::string_view name) const;
};

struct StepKernel {
  const char* name;
  std::span<const StepRow> rows;
  const plancap::KernelInfo& (*info)();
  StepGeometry (*geometry)(const plancap::Target& target, const void* params);
  void (*complete)(const StepLaunch& launch) = nullptr;
  void (*check_rest)(const plancap::ParamView& view) = nullptr;  // of a plan

  const StepRow* find(Form form) const;  // the operand of this form; null where there is none
};

// Elements between two slices' planes, which are all of one size; 0 for a kernel without them.
int64_t plane_stride(const StepKernel& kernel, const StepSizes& sizes);

// The sizes of a call. Throws for a number or an operand that contradicts them.
StepSizes measure_step(const StepKernel& kernel, const StepArgs& args);

// Throws for the first argument that is wrong; otherwise hands one launch to the sink.
void launch_step(const StepKernel& kernel, plancap::Sink& sink, const StepArgs& args);

// Throws kPlan for a parameter block that reaches past its operands.
void check_step_plan(const StepKernel& kernel, const plancap::ParamView& view);

// Gives a plan the numbers and extents of another length, as launch_step() would record them.
// Throws what launch_step() throws for the length.
void resize_step_plan(const StepKernel& kernel, plancap::PlanResize& plan);

inline constexpr size_t kMostStepParamBytes = 256;

// What the runtime knows of a step kernel, from its table and its host twin.
template <typename Params, const auto& kRows, const StepKernel& kKernel, auto kHost>
constexpr plancap::KernelInfo step_kernel_info() {
  static_assert(sizeof(Params) <= kMostStepParamBytes);
  plancap::KernelInfo info = plancap::make_kernel_info<Params>(
      kKernel.name, kFieldsOf<kRows>,
      [](const void* params) { kHost(*static_cast<const Params*>(params)); },
      [](const plancap::ParamView& view) { check_step_plan(kKernel, view); });
  info.resize = [](plancap::PlanResize& plan) { resize_step_plan(kKernel, plan); };
  info.shared_percent = kStepSharedPercent;
  info.early = kEarlyOf<kRows>;
  return info;
}

// A kernel's geometry by its typed block, as StepKernel takes it.
template <typename Params, auto kGeometry>
StepGeometry step_geometry(const plancap::Target& target, const void* params) {
  return kGeometry(target, *static_cast<const Params*>(params));
}

}  // namespace sdm
