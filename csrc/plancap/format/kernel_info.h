// What the runtime knows of a kernel: its parameter block, field by field, and its host twin.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "plancap/base/error.h"
#include "plancap/format/plan_format.h"

namespace sdm::plancap {

using ImageHash = std::array<uint8_t, 32>;  // a device image's SHA-256

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t volume() const { return uint64_t{x} * y * z; }
  bool operator==(const Dim3&) const = default;
};

// The launch geometry as one validated value. On the host backend everything is 1, or grid.x = 0
// for an empty problem.
struct LaunchConfig {
  Dim3 grid;
  Dim3 block;
  Dim3 cluster;
  uint32_t shared_bytes = 0;
  bool programmatic = false;
};

struct FieldInfo {
  const char* name;
  FieldType type;
  uint32_t offset;
  uint32_t size;
  uint8_t flags = 0;  // kFieldNullable
};

// Runs the whole launch on the calling thread's OpenMP team. May throw nothing.
using HostTwin = void (*)(const void* params);

// What went wrong with a call into a library; without a text it worked.
struct LibraryFailure {
  const char* text = nullptr;  // lives as long as the process
  bool out_of_memory = false;
  explicit operator bool() const { return text != nullptr; }
  ErrorKind kind() const { return out_of_memory ? ErrorKind::kMemory : ErrorKind::kCuda; }
};

// Makes the kernel's one call into a library, with the library's handle, on the handle's stream.
using LibraryCall = LibraryFailure (*)(const void* params, void* handle);

// Throws kPlan when a plan's parameter block does not fit the rest of the plan (param_view.h).
class ParamView;
using ParamCheck = void (*)(const ParamView& view);

// Fills in what a parameter block derives from its addresses (a tensor map embeds one). Called with
// the real addresses in place, before any launch: by a CUDA stream sink on its copy of the block,
// and when a CUDA plan is bound. A plan's bytes hold what the launcher left there: zeros.
using FinishParams = void (*)(void* params);

// Changes what follows from the number of steps in a plan's parameter block, and the extents of
// operands that any step may touch anywhere (plan_resize.h). Throws for a length that a launcher
// would refuse.
class PlanResize;
using ResizePlan = void (*)(PlanResize& plan);

struct KernelInfo {
  const char* name;  // the kernel's name in plans and in the registry
  uint32_t param_bytes;
  std::span<const FieldInfo> fields;
  HostTwin host;     // null: no host twin, and a host plan of it is an error
  ParamCheck check;  // of every decoded plan; a kernel with a host twin must have one
  uint64_t layout_hash;
  LibraryCall library = nullptr;  // set: no kernel of ours, and its CUDA plans are library steps
  FinishParams finish = nullptr;  // null: the block is complete as the launcher fills it
  ResizePlan resize = nullptr;    // null: no plan of it becomes one of another length
  // Percent of an SM's memory that it should offer as shared memory; 0: the driver's choice.
  uint8_t shared_percent = 0;
  // Pointer fields that a launch loads from before its wait. Where the launch ahead of it writes
  // there, it must not start early (early_starts.h).
  std::span<const char* const> early = {};
  bool loads_early(std::string_view field) const {
    for (const char* name : early) {
      if (field == name) return true;
    }
    return false;
  }
};

// FNV-1a (64 bits) over every field's name, type, offset, size and flags, and the block's size: two
// builds agree on it exactly when they agree on the meaning of a parameter block.
constexpr uint64_t layout_hash(std::span<const FieldInfo> fields, uint32_t param_bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add_byte = [&hash](uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  const auto add_word = [&](uint64_t word) {
    for (int i = 0; i < 4; ++i) add_byte(word >> (8 * i) & 0xff);
  };
  for (const FieldInfo& field : fields) {
    for (const char c : std::string_view(field.name)) add_byte(static_cast<unsigned char>(c));
    add_byte(0);
    add_word(static_cast<uint64_t>(field.type));
    add_word(field.offset);
    add_word(field.size);
    add_word(field.flags);
  }
  add_word(param_bytes);
  return hash;
}

// The field type of a member, from its C++ type.
template <typename T>
constexpr FieldType field_type_of() {
  if constexpr (std::is_enum_v<T>)
    return field_type_of<std::underlying_type_t<T>>();
  else if constexpr (std::is_pointer_v<T>)
    return FieldType::kPointer;
  else if constexpr (std::is_same_v<T, int8_t>)
    return FieldType::kInt8;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return FieldType::kUint8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return FieldType::kInt16;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return FieldType::kUint16;
  else if constexpr (std::is_same_v<T, int32_t>)
    return FieldType::kInt32;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return FieldType::kUint32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return FieldType::kInt64;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return FieldType::kUint64;
  else if constexpr (std::is_same_v<T, float>)
    return FieldType::kFloat32;
  else if constexpr (std::is_same_v<T, double>)
    return FieldType::kFloat64;
  else
    return FieldType::kBytes;
}

// One row of a field table: SDM_FIELD(GxGemmParams, step).
#define SDM_FIELD(Struct, member)                                       \
  ::sdm::plancap::FieldInfo {                                           \
    #member, ::sdm::plancap::field_type_of<decltype(Struct::member)>(), \
        static_cast<uint32_t>(offsetof(Struct, member)),                \
        static_cast<uint32_t>(sizeof(Struct::member))                   \
  }

// The same for a pointer that the kernel takes as null when there is no operand.
#define SDM_NULLABLE_FIELD(Struct, member)                                                         \
  ::sdm::plancap::FieldInfo {                                                                      \
    #member, ::sdm::plancap::FieldType::kPointer, static_cast<uint32_t>(offsetof(Struct, member)), \
        static_cast<uint32_t>(sizeof(Struct::member)), ::sdm::plancap::kFieldNullable              \
  }

template <typename Params>
constexpr KernelInfo make_kernel_info(const char* name, std::span<const FieldInfo> fields,
                                      HostTwin host, ParamCheck check = nullptr,
                                      FinishParams finish = nullptr) {
  static_assert(std::is_trivially_copyable_v<Params> && std::is_standard_layout_v<Params>);
  constexpr auto bytes = static_cast<uint32_t>(sizeof(Params));
  return {name, bytes, fields, host, check, layout_hash(fields, bytes), nullptr, finish};
}

constexpr KernelInfo with_early(KernelInfo info, std::span<const char* const> fields) {
  info.early = fields;
  return info;
}

}  // namespace sdm::plancap
