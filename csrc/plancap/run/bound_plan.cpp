#include "plancap/run/bound_plan.h"

#include <algorithm>
#include <cstring>

#include "plancap/base/error.h"
#include "plancap/format/patch_value.h"
#include "plancap/run/backends.h"

namespace sdm::plancap {
namespace {

#define SDM_BIND_CHECK(condition, operand, expected, given)                          \
  do {                                                                               \
    if (!(condition)) {                                                              \
      throw Error(ErrorKind::kPlan, cat("[", plan.kernel_name(), "] bind ", operand, \
                                        ": expected ", expected, ", got ", given));  \
    }                                                                                \
  } while (0)

// A plan's names are zero-terminated: decoding checked it.
const TensorRef* find_operand(std::span<const OperandRef> operands, std::string_view name) {
  for (const auto& [given, tensor] : operands) {
    if (given == name) return tensor;
  }
  return nullptr;
}

// Each name once, in the order of the relocations.
std::string operand_names(const Plan& plan) {
  std::vector<std::string_view> seen;
  std::string names;
  for (const RelocRecord& reloc : plan.relocs()) {
    if (std::ranges::find(seen, reloc.operand) != seen.end()) continue;
    seen.push_back(reloc.operand);
    names += (names.empty() ? "" : ", ") + std::string(reloc.operand);
  }
  return names;
}

void check_names(const Plan& plan, const std::vector<NamedTensor>& operands) {
  for (const auto& [name, tensor] : operands) {
    const bool known = std::ranges::any_of(
        plan.relocs(), [&](const auto& r) { return fixed_name(r.operand) == name; });
    SDM_BIND_CHECK(known, "'" + name + "'", "one of " + operand_names(plan), "that name");
  }
}

void check_operand(const Plan& plan, const RelocRecord& reloc, const TensorRef& tensor) {
  const char* name = reloc.operand;
  const DeviceKind kind = plan.backend() == Backend::kHost ? DeviceKind::kHost : DeviceKind::kCuda;
  SDM_BIND_CHECK(tensor.device.kind == kind, name,
                 kind == DeviceKind::kHost ? "a tensor on the cpu" : "a tensor on a CUDA device",
                 device_name(tensor.device));
  const auto dtype = static_cast<Dtype>(reloc.dtype);
  SDM_BIND_CHECK(tensor.dtype == dtype, name, dtype_name(dtype), tensor.describe());
  SDM_BIND_CHECK(tensor.contiguous(), name, "a contiguous tensor", tensor.describe());
  SDM_BIND_CHECK(tensor.bytes() == reloc.offset + reloc.extent, name,
                 cat(reloc.offset + reloc.extent, " bytes"),
                 cat(tensor.bytes(), " bytes (", tensor.describe(), ")"));
  const uint64_t align = uint64_t{1} << reloc.align_log2;
  const uint64_t address = reinterpret_cast<uint64_t>(tensor.data) + reloc.offset;
  SDM_BIND_CHECK(address % align == 0, name, cat("an address that is a multiple of ", align),
                 cat("one with remainder ", address % align));
}

// An operand where this binding puts it: what one relocation touches.
struct Placed {
  const RelocRecord* reloc;
  const TensorRef* tensor;
  uint64_t start;
  uint64_t end;
};

// Launches read and write their operands in any order, so a written operand shares bytes with no
// other.
void check_overlaps(const Plan& plan, std::span<const Placed> placed) {
  for (size_t a = 0; a < placed.size(); ++a) {
    for (size_t b = a + 1; b < placed.size(); ++b) {
      const bool written =
          (placed[a].reloc->access | placed[b].reloc->access) & uint8_t(Access::kWrite);
      const bool empty = placed[a].start == placed[a].end || placed[b].start == placed[b].end;
      const bool apart = placed[a].end <= placed[b].start || placed[b].end <= placed[a].start;
      if (!written || empty || apart || placed[a].tensor == placed[b].tensor) continue;
      SDM_BIND_CHECK(
          false,
          fixed_name(placed[a].reloc->operand) + " and " + fixed_name(placed[b].reloc->operand),
          "memory that does not overlap", "tensors that share bytes");
    }
  }
}

// Whether step ti's share of an operand is the one that counts in step ti: the field `step` says so
// (plan_format.h).
bool shares_follow_the_step(const Plan& plan) {
  for (const PatchRecord& patch : plan.patches()) {
    if (fixed_name(plan.fields()[patch.field].name) != "step") continue;
    return patch.base == 0 && patch.stride == 1 && patch.lowest <= 0 &&
           patch.highest >= int64_t{plan.header().steps} - 1;
  }
  return false;
}

std::vector<Touch> touches_of(const Plan& plan, std::span<const Placed> placed) {
  const bool shared_out = shares_follow_the_step(plan);
  std::vector<Touch> touches;
  touches.reserve(placed.size());
  for (const Placed& operand : placed) {
    const RelocRecord& reloc = *operand.reloc;
    const bool moved = std::ranges::any_of(
        plan.patches(), [&](const PatchRecord& patch) { return patch.field == reloc.field; });
    const bool share = shared_out && !moved && reloc.step_bytes != 0;
    touches.push_back({operand.start, share ? reloc.step_bytes : reloc.extent,
                       share ? reloc.step_stride : 0, (reloc.access & uint8_t(Access::kWrite)) != 0,
                       plan.kernel().loads_early(fixed_name(plan.fields()[reloc.field].name))});
  }
  return touches;
}

}  // namespace

void ResolvedPatch::apply(std::byte* params, int64_t ti) const {
  const int64_t value = std::clamp(patch_line(base, stride, ti), lowest, highest);
  switch (kind) {
    case PatchKind::kInt32: {
      const auto narrow = static_cast<int32_t>(value);
      std::memcpy(params + offset, &narrow, sizeof(narrow));
      return;
    }
    case PatchKind::kInt64:
      std::memcpy(params + offset, &value, sizeof(value));
      return;
    case PatchKind::kPointer: {
      const uint64_t moved = address + static_cast<uint64_t>(value);
      std::memcpy(params + offset, &moved, sizeof(moved));
      return;
    }
  }
}

std::shared_ptr<const BoundPlan> BoundPlan::bind(std::shared_ptr<const Plan> plan,
                                                 const std::vector<NamedTensor>& operands) {
  check_names(*plan, operands);
  std::vector<OperandRef> refs;
  for (const auto& [name, tensor] : operands) refs.push_back({name, &tensor});
  const std::shared_ptr<BoundPlan> bound = place(std::move(plan), refs);
  if (bound->plan().backend() == Backend::kCuda) {
    bound->prepared_ = prepare_launch(bound->plan(), bound->device_);
  }
  return bound;
}

std::shared_ptr<const BoundPlan> BoundPlan::rebind(std::span<const OperandRef> operands,
                                                   std::shared_ptr<const Plan> plan) const {
  const std::shared_ptr<BoundPlan> bound = place(std::move(plan), operands);
  if (bound->device_ == device_) {
    bound->prepared_ = prepared_;
  } else if (plan_->backend() == Backend::kCuda) {
    bound->prepared_ = prepare_launch(bound->plan(), bound->device_);
  }
  return bound;
}

std::shared_ptr<BoundPlan> BoundPlan::place(std::shared_ptr<const Plan> shared,
                                            std::span<const OperandRef> operands) {
  // Check.
  const Plan& plan = *shared;
  std::vector<Placed> placed;
  placed.reserve(plan.relocs().size());
  for (const RelocRecord& reloc : plan.relocs()) {
    const TensorRef* tensor = find_operand(operands, reloc.operand);
    SDM_BIND_CHECK(tensor, reloc.operand, "a tensor", "nothing: the plan is not bound without it");
    check_operand(plan, reloc, *tensor);
    const Device device = placed.empty() ? tensor->device : placed.front().tensor->device;
    SDM_BIND_CHECK(tensor->device == device, reloc.operand, "a tensor on " + device_name(device),
                   device_name(tensor->device));
    const uint64_t start = reinterpret_cast<uint64_t>(tensor->data) + reloc.offset;
    placed.push_back({&reloc, tensor, start, start + reloc.extent});
  }
  check_overlaps(plan, placed);

  // Fill.
  std::shared_ptr<BoundPlan> bound(new BoundPlan);
  bound->plan_ = shared;
  if (!placed.empty()) bound->device_ = placed.front().tensor->device;
  bound->params_.assign(plan.params().begin(), plan.params().end());
  std::vector<uint64_t> addresses(plan.fields().size(), 0);
  for (const Placed& operand : placed) {
    const uint32_t field = operand.reloc->field;
    addresses[field] = operand.start;
    std::memcpy(bound->params_.data() + plan.fields()[field].offset, &operand.start,
                sizeof(operand.start));
  }
  if (plan.backend() == Backend::kCuda) bound->touches_ = touches_of(plan, placed);
  const FinishParams finish = plan.kernel().finish;
  if (finish != nullptr && plan.backend() == Backend::kCuda) finish(bound->params_.data());
  bound->patches_.reserve(plan.patches().size());
  for (const PatchRecord& patch : plan.patches()) {
    bound->patches_.push_back({plan.fields()[patch.field].offset,
                               static_cast<PatchKind>(patch.kind), patch.base, patch.stride,
                               patch.lowest, patch.highest, addresses[patch.field]});
  }
  return bound;
}

}  // namespace sdm::plancap
