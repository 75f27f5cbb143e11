#include "plancap/format/registry.h"

#include <algorithm>
#include <deque>

#include "plancap/base/error.h"

namespace sdm::plancap {
namespace {

// A deque, so that a KernelInfo never moves: launchers and plans keep pointers to it.
std::deque<KernelInfo>& kernels() {
  static std::deque<KernelInfo> list;
  return list;
}

// A plan carries what the fields cover and zeros elsewhere, so only alignment may leave a gap: a
// member that the table forgets would be lost.
void check_no_gap(const KernelInfo& info, uint32_t begin, uint32_t end, uint32_t alignment) {
  SDM_INTERNAL_CHECK(end >= begin && end - begin < alignment, "kernel ", info.name, ": bytes ",
                     begin, "..", end, " of its parameter block belong to no field");
}

// The most that a field's offset can have been rounded up to.
uint32_t most_alignment(const FieldInfo& field) {
  return field.type == FieldType::kBytes ? 64 : field.size;
}

void check_fields(const KernelInfo& info) {
  uint32_t end = 0, most = 1;
  for (const FieldInfo& field : info.fields) {
    SDM_INTERNAL_CHECK(uint64_t{field.offset} + field.size <= info.param_bytes, "kernel ",
                       info.name, ": field ", field.name, " ends past the parameter block");
    SDM_INTERNAL_CHECK(std::string_view(field.name).size() < sizeof(FieldRecord::name), "kernel ",
                       info.name, ": field name ", field.name, " too long");
    check_no_gap(info, end, field.offset, most_alignment(field));
    end = field.offset + field.size;
    most = std::max(most, most_alignment(field));
  }
  check_no_gap(info, end, info.param_bytes, most);
  for (const std::string_view early : info.early) {
    const bool known = std::ranges::any_of(info.fields, [&](const FieldInfo& field) {
      return early == field.name && field.type == FieldType::kPointer;
    });
    SDM_INTERNAL_CHECK(known, "kernel ", info.name, ": no pointer field ", early, " to load early");
  }
}

}  // namespace

void register_kernel(const KernelInfo& info) {
  SDM_INTERNAL_CHECK(find_kernel(info.name) == nullptr, "kernel ", info.name, " registered twice");
  SDM_INTERNAL_CHECK(std::string_view(info.name).size() < sizeof(PlanHeader::kernel),
                     "kernel name ", info.name, " too long");
  SDM_INTERNAL_CHECK(!info.host || info.check, "kernel ", info.name,
                     " runs on the host but has no check of its parameter block");
  check_fields(info);
  kernels().push_back(info);
}

const KernelInfo* find_kernel(std::string_view name) {
  for (const KernelInfo& info : kernels()) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

std::vector<const KernelInfo*> all_kernels() {
  std::vector<const KernelInfo*> list;
  for (const KernelInfo& info : kernels()) list.push_back(&info);
  return list;
}

}  // namespace sdm::plancap
