#include "plancap/bound_plan.h"

#include <algorithm>
#include <cstring>

#include "plancap/error.h"

namespace sdm::plancap {
namespace {

#define SDM_BIND_CHECK(condition, operand, expected, given)                          \
  do {                                                                               \
    if (!(condition)) {                                                              \
      throw Error(ErrorKind::kPlan, cat("[", plan.kernel_name(), "] bind ", operand, \
                                        ": expected ", expected, ", got ", given));  \
    }                                                                                \
  } while (0)

const TensorRef* find_operand(const std::vector<NamedTensor>& operands, const std::string& name) {
  for (const auto& [given, tensor] : operands) {
    if (given == name) return &tensor;
  }
  return nullptr;
}

std::string operand_names(const Plan& plan) {
  std::string names;
  for (const RelocRecord& reloc : plan.relocs()) {
    const std::string name = fixed_name(reloc.operand);
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

void check_names(const Plan& plan, const std::vector<NamedTensor>& operands) {
  for (const auto& [name, tensor] : operands) {
    const bool known = std::any_of(plan.relocs().begin(), plan.relocs().end(),
                                   [&](const auto& r) { return fixed_name(r.operand) == name; });
    SDM_BIND_CHECK(known, "'" + name + "'", "one of " + operand_names(plan), "that name");
  }
}

void check_operand(const Plan& plan, const RelocRecord& reloc, const TensorRef& tensor) {
  const std::string name = fixed_name(reloc.operand);
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

// Launches read and write their operands in any order, so a written operand shares bytes with no
// other.
void check_overlaps(const Plan& plan, const std::vector<NamedTensor>& operands) {
  const auto relocs = plan.relocs();
  for (size_t a = 0; a < relocs.size(); ++a) {
    for (size_t b = a + 1; b < relocs.size(); ++b) {
      const bool written = (relocs[a].access | relocs[b].access) & uint8_t(Access::kWrite);
      const std::string name_a = fixed_name(relocs[a].operand),
                        name_b = fixed_name(relocs[b].operand);
      if (!written || name_a == name_b || !relocs[a].extent || !relocs[b].extent) continue;
      const auto start = [&](const RelocRecord& reloc, const std::string& name) {
        return reinterpret_cast<uint64_t>(find_operand(operands, name)->data) + reloc.offset;
      };
      const uint64_t start_a = start(relocs[a], name_a), start_b = start(relocs[b], name_b);
      const bool apart =
          start_a + relocs[a].extent <= start_b || start_b + relocs[b].extent <= start_a;
      SDM_BIND_CHECK(apart, name_a + " and " + name_b, "memory that does not overlap",
                     "tensors that share bytes");
    }
  }
}

}  // namespace

void ResolvedPatch::apply(std::byte* params, int64_t ti) const {
  const int64_t value = std::clamp(base + ti * stride, lowest, highest);
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

std::shared_ptr<const BoundPlan> BoundPlan::bind(std::shared_ptr<const Plan> shared,
                                                 const std::vector<NamedTensor>& operands) {
  // Check.
  const Plan& plan = *shared;
  check_names(plan, operands);
  Device device;
  bool first = true;
  for (const RelocRecord& reloc : plan.relocs()) {
    const std::string name = fixed_name(reloc.operand);
    const TensorRef* tensor = find_operand(operands, name);
    SDM_BIND_CHECK(tensor, name, "a tensor", "nothing: the plan is not bound without it");
    check_operand(plan, reloc, *tensor);
    SDM_BIND_CHECK(first || tensor->device == device, name, "a tensor on " + device_name(device),
                   device_name(tensor->device));
    device = tensor->device;
    first = false;
  }
  check_overlaps(plan, operands);

  // Fill.
  std::shared_ptr<BoundPlan> bound(new BoundPlan);
  bound->plan_ = shared;
  bound->device_ = device;
  bound->params_.assign(plan.params().begin(), plan.params().end());
  std::vector<uint64_t> addresses(plan.fields().size(), 0);
  for (const RelocRecord& reloc : plan.relocs()) {
    const TensorRef* tensor = find_operand(operands, fixed_name(reloc.operand));
    addresses[reloc.field] = reinterpret_cast<uint64_t>(tensor->data) + reloc.offset;
    std::memcpy(bound->params_.data() + plan.fields()[reloc.field].offset, &addresses[reloc.field],
                sizeof(uint64_t));
  }
  for (const PatchRecord& patch : plan.patches()) {
    bound->patches_.push_back({plan.fields()[patch.field].offset,
                               static_cast<PatchKind>(patch.kind), patch.base, patch.stride,
                               patch.lowest, patch.highest, addresses[patch.field]});
  }
  return bound;
}

}  // namespace sdm::plancap
