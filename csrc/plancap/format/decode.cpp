// Decoding: every byte of a plan is checked or covered by the checksum before anything uses it.
#include <cstring>
#include <limits>

#include "plancap/format/dtypes.h"
#include "plancap/format/file_header.h"
#include "plancap/format/param_view.h"
#include "plancap/format/plan.h"
#include "plancap/format/registry.h"

namespace sdm::plancap {
namespace {

#define SDM_PLAN_CHECK(condition, byte, ...) SDM_FORMAT_CHECK("plan", condition, byte, __VA_ARGS__)

constexpr bool is_zero(std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) {
    if (byte) return false;
  }
  return true;
}

template <size_t N>
void check_name(const char (&name)[N], size_t byte, const char* what, bool may_be_empty) {
  SDM_PLAN_CHECK(name[N - 1] == 0, byte, what, " is not terminated");
  SDM_PLAN_CHECK(may_be_empty || name[0], byte, what, " is empty");
  size_t length = 0;
  for (; name[length]; ++length) {
    const bool printable = name[length] > 32 && name[length] < 127;
    SDM_PLAN_CHECK(printable, byte + length, what, " holds a byte that is not printable ASCII");
  }
  for (size_t i = length; i < N; ++i) {
    SDM_PLAN_CHECK(name[i] == 0, byte + i, what, " is not zero-padded");
  }
}

// A sane geometry for any device; the driver checks the device's own limits.
void check_geometry(const PlanHeader& header) {
  constexpr uint32_t kMaxGrid[3] = {0x7fffffff, 65535, 65535};
  for (int i = 0; i < 3; ++i) {
    SDM_PLAN_CHECK(header.grid[i] <= kMaxGrid[i], offsetof(PlanHeader, grid) + 4 * i, "grid[", i,
                   "] is ", header.grid[i], ", the most is ", kMaxGrid[i]);
    SDM_PLAN_CHECK(header.block[i] >= 1 && header.block[i] <= 1024,
                   offsetof(PlanHeader, block) + 4 * i, "block[", i, "] is ", header.block[i],
                   ", expected 1..1024");
    SDM_PLAN_CHECK(header.cluster[i] >= 1 && header.cluster[i] <= 16,
                   offsetof(PlanHeader, cluster) + 4 * i, "cluster[", i, "] is ", header.cluster[i],
                   ", expected 1..16");
    SDM_PLAN_CHECK(header.grid[i] % header.cluster[i] == 0, offsetof(PlanHeader, grid) + 4 * i,
                   "grid[", i, "] = ", header.grid[i], " is not a multiple of cluster[", i,
                   "] = ", header.cluster[i]);
  }
  const uint64_t threads = uint64_t{header.block[0]} * header.block[1] * header.block[2];
  SDM_PLAN_CHECK(threads <= 1024, offsetof(PlanHeader, block), "a block of ", threads,
                 " threads, the most is 1024");
}

void check_header(const PlanHeader& header) {
  SDM_PLAN_CHECK(
      header.backend == uint8_t(Backend::kHost) || header.backend == uint8_t(Backend::kCuda),
      offsetof(PlanHeader, backend), "unknown backend ", int{header.backend});
  SDM_PLAN_CHECK((header.flags & ~kKnownFlags) == 0, offsetof(PlanHeader, flags), "unknown flags ",
                 header.flags);
  SDM_PLAN_CHECK(header.steps >= 1 && header.steps <= 0x7fffffff, offsetof(PlanHeader, steps),
                 "covers ", header.steps, " steps, expected 1..2^31-1");
  SDM_PLAN_CHECK(is_zero(header.reserved), offsetof(PlanHeader, reserved),
                 "reserved bytes not zero");
  check_name(header.kernel, offsetof(PlanHeader, kernel), "kernel name", false);
  check_name(header.entry, offsetof(PlanHeader, entry), "entry name", true);
  check_geometry(header);
  if (header.backend == uint8_t(Backend::kHost)) {
    const bool bare = is_zero(header.image_hash) && is_zero(header.device_uuid) &&
                      !header.entry[0] && header.flags == 0 && header.shared_bytes == 0 &&
                      header.capability_major == 0 && header.capability_minor == 0;
    SDM_PLAN_CHECK(bare, offsetof(PlanHeader, image_hash),
                   "a host plan names a device, an image, an entry, flags or shared memory");
    for (int i = 0; i < 3; ++i) {
      SDM_PLAN_CHECK(header.grid[i] <= 1 && header.block[i] == 1 && header.cluster[i] == 1,
                     offsetof(PlanHeader, grid) + 4 * i,
                     "a host plan is one block of one thread, or an empty grid");
    }
  }
}

// The three tables and the parameter block must fill the plan exactly. 64-bit sums cannot wrap:
// every count is below 2^32 and every record below 2^7 bytes.
void check_size(const PlanHeader& header) {
  const uint64_t expected = sizeof(PlanHeader) + uint64_t{header.num_fields} * sizeof(FieldRecord) +
                            uint64_t{header.num_patches} * sizeof(PatchRecord) +
                            uint64_t{header.num_relocs} * sizeof(RelocRecord) +
                            (uint64_t{header.param_bytes} + 7) / 8 * 8;
  SDM_PLAN_CHECK(expected == header.total_bytes, offsetof(PlanHeader, num_fields),
                 "its tables and parameters take ", expected, " bytes, the header says ",
                 header.total_bytes);
}

const KernelInfo* check_kernel(const PlanHeader& header) {
  const KernelInfo* kernel = find_kernel(fixed_name(header.kernel));
  SDM_PLAN_CHECK(kernel, offsetof(PlanHeader, kernel), "unknown kernel '",
                 fixed_name(header.kernel), "'");
  SDM_PLAN_CHECK(
      header.layout_hash == kernel->layout_hash && header.param_bytes == kernel->param_bytes &&
          header.num_fields == kernel->fields.size(),
      offsetof(PlanHeader, layout_hash), "parameters of '", kernel->name,
      "' are laid out differently in this build (", header.param_bytes, " bytes, hash ",
      header.layout_hash, "; here ", kernel->param_bytes, ", ", kernel->layout_hash, ")");
  const bool host = header.backend == uint8_t(Backend::kHost);
  SDM_PLAN_CHECK(!host || kernel->host, offsetof(PlanHeader, backend), "'", kernel->name,
                 "' has no host twin");
  const bool library = (header.flags & kFlagLibrary) != 0;
  SDM_PLAN_CHECK(host || library == (kernel->library != nullptr), offsetof(PlanHeader, flags), "'",
                 kernel->name, library ? "' is not a library call" : "' is a library call");
  SDM_PLAN_CHECK(!library || (header.flags & kFlagProgrammatic) == 0, offsetof(PlanHeader, flags),
                 "a library call is never launched programmatically");
  return kernel;
}

void check_field(const FieldRecord& record, const FieldInfo& info, size_t index, size_t byte) {
  char name[sizeof(record.name)] = {};
  std::strncpy(name, info.name, sizeof(name) - 1);
  const bool same = std::memcmp(record.name, name, sizeof(name)) == 0 &&
                    record.offset == info.offset && record.size == info.size &&
                    record.type == uint8_t(info.type) && record.flags == info.flags &&
                    is_zero(record.reserved);
  SDM_PLAN_CHECK(same, byte, "field ", index, " is not this build's '", info.name, "'");
}

// Computed in 128 bits: base + ti * stride of damaged numbers must not overflow.
bool fits_int64(__int128 value) {
  return value >= std::numeric_limits<int64_t>::min() &&
         value <= std::numeric_limits<int64_t>::max();
}

void check_patch(const PatchRecord& patch, std::span<const FieldRecord> fields, uint32_t steps,
                 size_t index, size_t byte) {
  SDM_PLAN_CHECK(patch.field < fields.size(), byte, "patch ", index, ": field ", patch.field,
                 " does not exist");
  const auto type = static_cast<FieldType>(fields[patch.field].type);
  const bool fits = (patch.kind == uint8_t(PatchKind::kInt32) && type == FieldType::kInt32) ||
                    (patch.kind == uint8_t(PatchKind::kInt64) && type == FieldType::kInt64) ||
                    (patch.kind == uint8_t(PatchKind::kPointer) && type == FieldType::kPointer);
  SDM_PLAN_CHECK(fits, byte, "patch ", index, ": kind ", int{patch.kind}, " does not fit field '",
                 fixed_name(fields[patch.field].name), "'");
  SDM_PLAN_CHECK(is_zero(patch.reserved), byte, "patch ", index, ": reserved bytes not zero");
  SDM_PLAN_CHECK(patch.lowest <= patch.highest, byte, "patch ", index, ": clamp ", patch.lowest,
                 "..", patch.highest, " is empty");
  SDM_PLAN_CHECK(patch.kind != uint8_t(PatchKind::kInt32) ||
                     (patch.lowest >= std::numeric_limits<int32_t>::min() &&
                      patch.highest <= std::numeric_limits<int32_t>::max()),
                 byte, "patch ", index, ": clamp leaves int32");
  SDM_PLAN_CHECK(fits_int64(__int128{patch.base} + __int128{patch.stride} * (steps - 1)), byte,
                 "patch ", index, ": base + step * stride leaves int64");
}

void check_reloc(const RelocRecord& reloc, std::span<const FieldRecord> fields, uint32_t steps,
                 size_t index, size_t byte) {
  SDM_PLAN_CHECK(reloc.field < fields.size(), byte, "relocation ", index, ": field ", reloc.field,
                 " does not exist");
  SDM_PLAN_CHECK(fields[reloc.field].type == uint8_t(FieldType::kPointer), byte, "relocation ",
                 index, ": field '", fixed_name(fields[reloc.field].name), "' is not a pointer");
  check_name(reloc.operand, byte + offsetof(RelocRecord, operand), "operand name", false);
  SDM_PLAN_CHECK(dtype_bytes(static_cast<Dtype>(reloc.dtype)) != 0, byte, "relocation ", index,
                 ": unknown dtype ", int{reloc.dtype});
  SDM_PLAN_CHECK(reloc.access >= 1 && reloc.access <= 3, byte, "relocation ", index,
                 ": unknown access ", int{reloc.access});
  SDM_PLAN_CHECK(reloc.align_log2 <= 12, byte, "relocation ", index, ": alignment 2^",
                 int{reloc.align_log2}, ", the most is 2^12");
  const uint32_t natural = dtype_bytes(static_cast<Dtype>(reloc.dtype));
  SDM_PLAN_CHECK(uint32_t{1} << reloc.align_log2 >= natural, byte, "relocation ", index,
                 ": alignment 2^", int{reloc.align_log2}, ", its elements take ", natural,
                 " bytes");
  SDM_PLAN_CHECK(reloc.reserved == 0, byte, "relocation ", index, ": reserved byte not zero");
  constexpr uint64_t kMost = uint64_t{1} << 62;
  SDM_PLAN_CHECK(reloc.offset <= kMost && reloc.extent <= kMost, byte, "relocation ", index,
                 ": offset or extent past 2^62 bytes");
  const __int128 last = __int128{reloc.step_stride} * (steps - 1) + reloc.step_bytes;
  SDM_PLAN_CHECK(
      last <= reloc.extent, byte, "relocation ", index, " ('", fixed_name(reloc.operand),
      "'): step ", steps - 1, " ends at byte ",
      last > __int128{kMost} ? std::string("2^62 or later") : std::to_string(uint64_t(last)),
      ", the extent is ", reloc.extent);
}

template <typename Record>
std::vector<Record> read_records(std::span<const std::byte> bytes, size_t& at, uint32_t count) {
  std::vector<Record> records(count);
  if (count) std::memcpy(records.data(), bytes.data() + at, count * sizeof(Record));
  at += count * sizeof(Record);
  return records;
}

void check_once(std::vector<bool>& seen, uint32_t field, const char* what, size_t index,
                size_t byte) {
  SDM_PLAN_CHECK(!seen[field], byte, what, " ", index, ": field ", field, " already has one");
  seen[field] = true;
}

// No address of another process, and nothing between the fields.
void check_pointers_and_padding(const Plan& plan) {
  const auto block = plan.bytes().subspan(plan.params_offset());
  std::vector<bool> is_value(block.size());
  for (const FieldRecord& field : plan.fields()) {
    const bool pointer = field.type == uint8_t(FieldType::kPointer);
    for (uint32_t i = 0; i < field.size; ++i) {
      SDM_PLAN_CHECK(!pointer || block[field.offset + i] == std::byte{0},
                     plan.params_offset() + field.offset, "field '", fixed_name(field.name),
                     "' holds an address of another process");
      is_value[field.offset + i] = true;
    }
  }
  for (size_t i = 0; i < block.size(); ++i) {
    SDM_PLAN_CHECK(is_value[i] || block[i] == std::byte{0}, plan.params_offset() + i,
                   "padding of the parameter block not zero");
  }
}

}  // namespace

std::shared_ptr<const Plan> Plan::decode(std::vector<std::byte> bytes) {
  std::shared_ptr<Plan> plan(new Plan);
  plan->header_ = read_header<PlanHeader>("plan", kPlanMagic, bytes);
  const PlanHeader& header = plan->header_;
  check_header(header);
  check_size(header);
  plan->kernel_ = check_kernel(header);

  size_t at = sizeof(PlanHeader);
  plan->fields_ = read_records<FieldRecord>(bytes, at, header.num_fields);
  plan->patches_ = read_records<PatchRecord>(bytes, at, header.num_patches);
  plan->relocs_ = read_records<RelocRecord>(bytes, at, header.num_relocs);

  for (size_t i = 0; i < plan->fields_.size(); ++i) {
    check_field(plan->fields_[i], plan->kernel_->fields[i], i, plan->fields_offset(i));
  }
  plan->check_lengths();
  std::vector<bool> patched(plan->fields_.size()), relocated(plan->fields_.size());
  for (size_t i = 0; i < plan->patches_.size(); ++i) {
    check_once(patched, plan->patches_[i].field, "patch", i, plan->patches_offset(i));
  }
  for (size_t i = 0; i < plan->relocs_.size(); ++i) {
    check_once(relocated, plan->relocs_[i].field, "relocation", i, plan->relocs_offset(i));
  }
  for (size_t field = 0; field < plan->fields_.size(); ++field) {
    const bool pointer = plan->fields_[field].type == uint8_t(FieldType::kPointer);
    const bool needed = patched[field] || !(plan->fields_[field].flags & kFieldNullable);
    SDM_PLAN_CHECK(!pointer || !needed || relocated[field], plan->relocs_offset(0), "pointer '",
                   fixed_name(plan->fields_[field].name), "' has no operand");
  }
  plan->bytes_ = std::move(bytes);
  check_pointers_and_padding(*plan);
  check_param_block(*plan);
  return plan;
}

void Plan::check_lengths() const {
  for (size_t i = 0; i < patches_.size(); ++i) {
    check_patch(patches_[i], fields_, header_.steps, i, patches_offset(i));
  }
  for (size_t i = 0; i < relocs_.size(); ++i) {
    check_reloc(relocs_[i], fields_, header_.steps, i, relocs_offset(i));
  }
}

size_t Plan::fields_offset(size_t index) const {
  return sizeof(PlanHeader) + index * sizeof(FieldRecord);
}

size_t Plan::patches_offset(size_t index) const {
  return fields_offset(fields_.size()) + index * sizeof(PatchRecord);
}

size_t Plan::relocs_offset(size_t index) const {
  return patches_offset(patches_.size()) + index * sizeof(RelocRecord);
}

size_t Plan::params_offset() const {
  return bytes_.size() - (size_t{header_.param_bytes} + 7) / 8 * 8;
}

std::span<const std::byte> Plan::params() const {
  return std::span(bytes_).subspan(params_offset(), header_.param_bytes);
}

std::string Plan::kernel_name() const { return fixed_name(header_.kernel); }
std::string Plan::entry() const { return fixed_name(header_.entry); }

LaunchConfig Plan::config() const {
  const auto dim = [](const uint32_t (&from)[3]) { return Dim3{from[0], from[1], from[2]}; };
  return {dim(header_.grid), dim(header_.block), dim(header_.cluster), header_.shared_bytes,
          (header_.flags & kFlagProgrammatic) != 0};
}

}  // namespace sdm::plancap
