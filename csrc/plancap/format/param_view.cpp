#include "plancap/format/param_view.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "plancap/base/error.h"
#include "plancap/format/dtypes.h"
#include "plancap/format/patch_value.h"

namespace sdm::plancap {
namespace {

constexpr uint64_t kTooMuch = std::numeric_limits<uint64_t>::max();

// value(ti) of a decoded patch: base + ti * stride is known to fit.
int64_t patched_value(const PatchRecord& patch, int64_t ti) {
  return std::clamp(patch_line(patch.base, patch.stride, ti), patch.lowest, patch.highest);
}

struct Range {
  int64_t least, greatest;
};

// A clamped line has its extremes at its ends.
Range patched_range(const PatchRecord& patch, uint32_t steps) {
  const int64_t first = patched_value(patch, 0), last = patched_value(patch, int64_t{steps} - 1);
  return {std::min(first, last), std::max(first, last)};
}

const PatchRecord* find_patch(const Plan& plan, uint32_t field) {
  for (const PatchRecord& patch : plan.patches()) {
    if (patch.field == field) return &patch;
  }
  return nullptr;
}

std::vector<std::byte> block_at(const Plan& plan, bool greatest) {
  std::vector<std::byte> block(plan.params().begin(), plan.params().end());
  for (const PatchRecord& patch : plan.patches()) {
    const FieldRecord& field = plan.fields()[patch.field];
    if (patch.kind == uint8_t(PatchKind::kPointer)) continue;
    const Range range = patched_range(patch, plan.header().steps);
    const int64_t value = greatest ? range.greatest : range.least;
    std::memcpy(block.data() + field.offset, &value, field.size);  // little-endian: the low bytes
  }
  return block;
}

}  // namespace

uint64_t volume(std::initializer_list<int64_t> sizes) {
  unsigned __int128 product = 1;
  for (const int64_t size : sizes) {
    if (size < 0) return kTooMuch;
    product *= static_cast<uint64_t>(size);
    if (product > kTooMuch) return kTooMuch;
  }
  return static_cast<uint64_t>(product);
}

const RelocRecord* ParamView::find_reloc(const char* field) const {
  for (const RelocRecord& reloc : plan_.relocs()) {
    if (std::strcmp(plan_.fields()[reloc.field].name, field) == 0) return &reloc;
  }
  return nullptr;
}

uint64_t ParamView::extent(const char* field) const {
  const RelocRecord* reloc = find_reloc(field);
  return reloc ? reloc->extent : 0;
}

void ParamView::expect(bool condition, const char* field, const std::string& expected,
                       const std::string& given) const {
  if (condition) return;
  size_t byte = plan_.params_offset();
  for (const FieldRecord& record : plan_.fields()) {
    if (std::strcmp(record.name, field) == 0) byte += record.offset;
  }
  throw Error(ErrorKind::kPlan, cat("plan: [", plan_.kernel_name(), "] ", field, ": expected ",
                                    expected, ", got ", given, " (byte ", byte, ")"));
}

void ParamView::range(const char* field, int64_t value, int64_t lowest, int64_t highest) const {
  if (value >= lowest && value <= highest) return;
  expect(false, field, cat(lowest, "..", highest), std::to_string(value));
}

void ParamView::dtype(const char* field, Dtype expected) const {
  const RelocRecord* reloc = find_reloc(field);
  if (!reloc || reloc->dtype == uint8_t(expected)) return;
  expect(false, field, dtype_name(expected), dtype_name(static_cast<Dtype>(reloc->dtype)));
}

void ParamView::inside(const char* field, Access access, uint32_t align, uint64_t bytes) const {
  const RelocRecord* reloc = find_reloc(field);
  if (!reloc) return expect(bytes == 0, field, cat("an operand of ", bytes, " bytes"), "none");
  const auto wanted = static_cast<uint8_t>(access);
  if ((reloc->access & wanted) != wanted) {
    expect(false, field, "an operand that may be used as the kernel uses it",
           cat("access ", int{reloc->access}, " where ", int{wanted}, " is needed"));
  }
  if ((uint32_t{1} << reloc->align_log2) < align) {
    expect(false, field, cat("addresses aligned to ", align), cat("2^", int{reloc->align_log2}));
  }
  const PatchRecord* patch = find_patch(plan_, reloc->field);
  const int64_t moved = patch ? patched_range(*patch, plan_.header().steps).greatest : 0;
  if (bytes > reloc->extent - static_cast<uint64_t>(moved)) {
    expect(false, field, cat("at least ", bytes, " bytes, which the parameters reach"),
           cat("an extent of ", reloc->extent));
  }
}

void ParamView::reach_bytes(const char* field, Access access, uint32_t align,
                            uint64_t bytes) const {
  const RelocRecord* reloc = find_reloc(field);
  if (reloc && (reloc->step_bytes != 0 || reloc->step_stride != 0)) {
    expect(false, field, "no share of one step", cat(reloc->step_bytes, " bytes a step"));
  }
  inside(field, access, align, bytes);
}

void ParamView::share_bytes(const char* field, Access access, uint32_t align, uint64_t bytes,
                            uint64_t stride, int64_t step) const {
  const RelocRecord* reloc = find_reloc(field);
  if (reloc && (reloc->step_bytes != bytes || reloc->step_stride != stride)) {
    expect(false, field, cat(bytes, " bytes a step, ", stride, " apart, as the parameters say"),
           cat(reloc->step_bytes, ", ", reloc->step_stride));
  }
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const uint64_t before = volume({step, static_cast<int64_t>(std::min(stride, kMost))});
  inside(field, access, align, before > kTooMuch - bytes ? kTooMuch : before + bytes);
}

void check_param_block(const Plan& plan) {
  for (const PatchRecord& patch : plan.patches()) {
    if (patch.kind != uint8_t(PatchKind::kPointer)) continue;
    const auto of_field = [&](const RelocRecord& reloc) { return reloc.field == patch.field; };
    const RelocRecord& reloc = *std::ranges::find_if(plan.relocs(), of_field);
    const ParamView view(plan, plan.params());
    const Range range = patched_range(patch, plan.header().steps);
    const int64_t align = int64_t{1} << reloc.align_log2;
    const bool inside = range.least >= 0 && static_cast<uint64_t>(range.greatest) <= reloc.extent;
    const bool aligned = patch.base % align == 0 && patch.stride % align == 0 &&
                         range.least % align == 0 && range.greatest % align == 0;
    view.expect(inside && aligned, plan.fields()[patch.field].name,
                cat("steps to multiples of ", align, " in 0..", reloc.extent),
                cat("bytes ", range.least, "..", range.greatest));
  }
  if (!plan.kernel().check) return;
  plan.kernel().check(ParamView(plan, block_at(plan, false)));
  if (!plan.patches().empty()) plan.kernel().check(ParamView(plan, block_at(plan, true)));
}

}  // namespace sdm::plancap
