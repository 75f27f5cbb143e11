#include "plancap/format/plan_resize.h"

#include <cstring>

#include "plancap/format/file_header.h"
#include "plancap/format/param_view.h"

namespace sdm::plancap {
namespace {

constexpr uint32_t kMostSteps = 0x7fffffff;

[[noreturn]] void refuse(const Plan& plan, uint32_t steps, const std::string& why) {
  throw Error(ErrorKind::kPlan, cat("[", plan.kernel_name(), "] bind: expected ",
                                    plan.header().steps, " steps, got ", steps, ": ", why));
}

template <typename Record>
void put_records(const std::vector<Record>& records, std::byte* to) {
  if (!records.empty()) std::memcpy(to, records.data(), records.size() * sizeof(Record));
}

}  // namespace

PlanResize::PlanResize(Plan& plan, std::span<const LengthNumber> numbers)
    : plan_(plan),
      numbers_(numbers),
      block_(std::span(plan.bytes_).subspan(plan.params_offset(), plan.header_.param_bytes)) {}

std::optional<int64_t> PlanResize::number(std::string_view name) const {
  for (const auto& [given, value] : numbers_) {
    if (given == name) return value;
  }
  return {};
}

void PlanResize::set_extent(std::string_view field, uint64_t bytes) {
  for (RelocRecord& reloc : plan_.relocs_) {
    if (field == plan_.fields_[reloc.field].name) reloc.extent = bytes;
  }
}

// Only what a launcher records for all steps of its operands: a patch that starts at 0 and is
// clamped nowhere before the last step, shares one behind the other.
void PlanResize::follow_steps(uint32_t steps) {
  const int64_t last = int64_t{plan_.header_.steps} - 1;
  for (PatchRecord& patch : plan_.patches_) {
    const bool plain = patch.base == 0 && patch.lowest == 0 && patch.stride >= 0 &&
                       __int128{patch.stride} * last == patch.highest;
    if (!plain) refuse(plan_, steps, "it patches some of its steps alike");
    const __int128 highest = __int128{patch.stride} * (int64_t{steps} - 1);
    if (highest > INT64_MAX) refuse(plan_, steps, "its last one's share is past 2^63 bytes");
    patch.highest = static_cast<int64_t>(highest);
  }
  for (RelocRecord& reloc : plan_.relocs_) {
    if (reloc.step_bytes == 0 && reloc.step_stride == 0) continue;
    if (reloc.step_bytes != reloc.step_stride) {
      refuse(plan_, steps, cat("of '", fixed_name(reloc.operand), "', steps have shares apart"));
    }
    reloc.extent = volume({static_cast<int64_t>(reloc.step_bytes), int64_t{steps}});
  }
  plan_.header_.steps = steps;
}

void PlanResize::write_back() {
  std::byte* bytes = plan_.bytes_.data();
  put_records(plan_.patches_, bytes + plan_.patches_offset(0));
  put_records(plan_.relocs_, bytes + plan_.relocs_offset(0));
  seal(plan_.header_, plan_.bytes_);
}

std::shared_ptr<const Plan> Plan::resized(uint32_t steps,
                                          std::span<const LengthNumber> numbers) const {
  // Check.
  if (kernel_->resize == nullptr) refuse(*this, steps, "plans of this kernel have one length");
  if (steps < 1 || steps > kMostSteps) refuse(*this, steps, "a plan covers 1..2^31-1");

  // Change.
  const std::shared_ptr<Plan> plan(new Plan(*this));
  PlanResize resize(*plan, numbers);
  resize.follow_steps(steps);
  kernel_->resize(resize);
  resize.write_back();

  // Check again, as what was decoded.
  plan->check_lengths();
  check_param_block(*plan);
  return plan;
}

}  // namespace sdm::plancap
