#include "plancap/capture/encode.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "plancap/base/error.h"
#include "plancap/format/file_header.h"

namespace sdm::plancap {
namespace {

static_assert(std::endian::native == std::endian::little, "plans are written by memcpy");

template <size_t N>
void set_name(char (&to)[N], std::string_view name) {
  SDM_INTERNAL_CHECK(name.size() < N, "name ", name, " too long for the plan format");
  std::memcpy(to, name.data(), name.size());
}

uint32_t field_index(const Launch& launch, std::string_view name) {
  const auto fields = launch.kernel->fields;
  for (uint32_t i = 0; i < fields.size(); ++i) {
    if (name == fields[i].name) return i;
  }
  throw Error(ErrorKind::kInternal,
              cat("internal error: [", launch.kernel->name, "] has no field ", name));
}

FieldRecord field_record(const FieldInfo& info) {
  FieldRecord record{};
  set_name(record.name, info.name);
  record.offset = info.offset;
  record.size = info.size;
  record.type = static_cast<uint8_t>(info.type);
  record.flags = info.flags;
  return record;
}

PatchRecord patch_record(const Launch& launch, const Patch& patch) {
  PatchRecord record{};
  record.field = field_index(launch, patch.field);
  record.kind = static_cast<uint8_t>(patch.kind);
  record.base = patch.base;
  record.stride = patch.stride;
  record.lowest = patch.lowest;
  record.highest = patch.highest;
  return record;
}

RelocRecord reloc_record(const Launch& launch, const Operand& operand) {
  RelocRecord record{};
  record.field = field_index(launch, operand.field);
  record.dtype = static_cast<uint8_t>(operand.tensor.dtype);
  record.access = static_cast<uint8_t>(operand.access);
  SDM_INTERNAL_CHECK(std::has_single_bit(operand.align), "operand ", operand.name, ": alignment ",
                     operand.align, " is not a power of two");
  record.align_log2 = static_cast<uint8_t>(std::countr_zero(operand.align));
  set_name(record.operand, operand.name);
  record.offset = operand.offset;
  SDM_INTERNAL_CHECK(operand.tensor.bytes() >= operand.offset, "operand ", operand.name,
                     ": offset past the tensor");
  record.extent = operand.tensor.bytes() - operand.offset;
  record.step_stride = operand.step_stride;
  record.step_bytes = operand.step_bytes;
  return record;
}

PlanHeader make_header(const Launch& launch, const Target& target, const ImageHash& image_hash) {
  const LaunchConfig& config = launch.config;
  PlanHeader header{};
  header.magic = kPlanMagic;
  header.version = kFormatVersion;
  header.oldest_reader = kOldestReader;
  header.header_bytes = sizeof(PlanHeader);
  header.param_bytes = launch.kernel->param_bytes;
  header.layout_hash = launch.kernel->layout_hash;
  std::copy(image_hash.begin(), image_hash.end(), header.image_hash);
  std::copy(target.uuid.begin(), target.uuid.end(), header.device_uuid);
  set_name(header.kernel, launch.kernel->name);
  set_name(header.entry, launch.entry);
  const auto set_dim = [](uint32_t (&to)[3], Dim3 from) {
    to[0] = from.x, to[1] = from.y, to[2] = from.z;
  };
  set_dim(header.grid, config.grid);
  set_dim(header.block, config.block);
  set_dim(header.cluster, config.cluster);
  header.shared_bytes = config.shared_bytes;
  header.steps = launch.steps;
  header.flags =
      (config.programmatic ? kFlagProgrammatic : 0) | (launch.library ? kFlagLibrary : 0);
  header.num_fields = static_cast<uint32_t>(launch.kernel->fields.size());
  header.num_patches = static_cast<uint32_t>(launch.patches.size());
  header.num_relocs = static_cast<uint32_t>(launch.operands.size());
  header.backend = static_cast<uint8_t>(target.backend);
  header.capability_major = static_cast<uint8_t>(target.capability_major);
  header.capability_minor = static_cast<uint8_t>(target.capability_minor);
  return header;
}

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> encode_plan(const Launch& launch, const Target& target,
                                   const ImageHash& image_hash) {
  Writer writer;
  writer.put(make_header(launch, target, image_hash));
  for (const FieldInfo& field : launch.kernel->fields) writer.put(field_record(field));
  for (const Patch& patch : launch.patches) writer.put(patch_record(launch, patch));
  for (const Operand& operand : launch.operands) writer.put(reloc_record(launch, operand));

  // The parameter block: its values, with no address of this process and zeros between them.
  std::vector<std::byte>& bytes = writer.bytes();
  const size_t params = bytes.size();
  bytes.resize(params + (launch.kernel->param_bytes + 7) / 8 * 8);
  const auto* from = static_cast<const std::byte*>(launch.params);
  for (const FieldInfo& field : launch.kernel->fields) {
    if (field.type == FieldType::kPointer) continue;
    std::memcpy(bytes.data() + params + field.offset, from + field.offset, field.size);
  }

  // Sizes and checksum last.
  PlanHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  seal(header, bytes);
  return std::move(bytes);
}

}  // namespace sdm::plancap
