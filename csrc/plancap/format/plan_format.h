// The wire format of plans and chains, version 1. This header includes nothing but integers, and
// the Python mirror (sdm_runtime/format/plan_format.py) is generated from it by
// tools/gen/plan_format.py, which reads the constants, the enums and the structs below line by
// line: one member per line.
//
// A plan file:   PlanHeader | FieldRecord[num_fields] | PatchRecord[num_patches] |
//                RelocRecord[num_relocs] | parameter block, zero-padded to 8 bytes.
// A chain file:  ChainHeader | ChainEntry[num_plans] | plans, each at its entry's offset, in order,
//                with nothing between them.
// Numbers are little-endian, reserved bytes are zero, names are zero-padded ASCII.
// A checksum is the CRC-32 (IEEE 802.3, reflected, as zlib computes it) of every byte after it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sdm::plancap {

inline constexpr uint64_t kPlanMagic = 0x0A4E414C504D4453;   // "SDMPLAN\n"
inline constexpr uint64_t kChainMagic = 0x0A4E4843504D4453;  // "SDMPCHN\n"
inline constexpr uint16_t kFormatVersion = 1;
inline constexpr uint16_t kOldestReader = 1;  // the oldest version whose reader can read this one
inline constexpr uint32_t kFlagProgrammatic = 1;  // launched with programmatic stream serialization
inline constexpr uint32_t kFlagLibrary = 2;       // a library call, not a kernel of ours
inline constexpr uint32_t kKnownFlags = 3;
inline constexpr uint8_t kFieldNullable = 1;  // a pointer that may stay null: no relocation

enum class Backend : uint8_t {
  kHost = 1,
  kCuda = 2,
};

enum class FieldType : uint8_t {
  kPointer = 1,
  kInt8 = 2,
  kUint8 = 3,
  kInt16 = 4,
  kUint16 = 5,
  kInt32 = 6,
  kUint32 = 7,
  kInt64 = 8,
  kUint64 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kBytes = 12,  // an opaque nested struct
};

// Which of a chain's steps runs first.
enum class StepOrder : uint8_t {
  kDescending = 0,  // the last one
  kAscending = 1,
};

enum class PatchKind : uint8_t {
  kInt32 = 1,
  kInt64 = 2,
  kPointer = 3,  // the bound address plus value(ti)
};

enum class Access : uint8_t {
  kRead = 1,
  kWrite = 2,
  kReadWrite = 3,
};

enum class Dtype : uint8_t {
  kFloat32 = 1,
  kBFloat16 = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt64 = 5,
  kFloat8E4M3 = 6,
  kFloat64 = 7,
  kFloat16 = 8,
};

struct PlanHeader {
  uint64_t magic;
  uint32_t checksum;
  uint16_t version;
  uint16_t oldest_reader;
  uint32_t header_bytes;
  uint32_t param_bytes;
  uint64_t total_bytes;
  uint64_t layout_hash;     // of the kernel's parameter layout (see layout_hash in kernel_info.h)
  uint8_t image_hash[32];   // SHA-256 of the device image; zero on the host backend
  uint8_t device_uuid[16];  // zero on the host backend
  char kernel[64];          // the kernel's name in the registry
  char entry[96];           // the device function; empty on the host backend
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3];
  uint32_t shared_bytes;
  uint32_t steps;
  uint32_t flags;
  uint32_t num_fields;
  uint32_t num_patches;
  uint32_t num_relocs;
  uint8_t backend;
  uint8_t capability_major;
  uint8_t capability_minor;
  uint8_t reserved[9];
};

struct FieldRecord {
  char name[32];
  uint32_t offset;
  uint32_t size;  // bytes, all elements together
  uint8_t type;
  uint8_t flags;
  uint8_t reserved[6];
};

// value(ti) = clamp(base + ti * stride, lowest, highest), written over a field before step ti.
struct PatchRecord {
  uint32_t field;
  uint8_t kind;
  uint8_t reserved[3];
  int64_t base;
  int64_t stride;
  int64_t lowest;
  int64_t highest;
};

// A pointer field = address of the operand + offset. The launch touches [offset, offset + extent)
// of the operand over all steps, and [offset + ti * step_stride, ... + step_bytes) in step ti; with
// step_bytes = 0 any part of it in any step. A field named `step` holds the ti that counts here.
struct RelocRecord {
  uint32_t field;
  uint8_t dtype;
  uint8_t access;
  uint8_t align_log2;  // the address must be a multiple of 2^align_log2
  uint8_t reserved;
  char operand[32];
  uint64_t offset;
  uint64_t extent;
  uint64_t step_stride;
  uint64_t step_bytes;
};

struct ChainHeader {
  uint64_t magic;
  uint32_t checksum;
  uint16_t version;
  uint16_t oldest_reader;
  uint32_t header_bytes;
  uint32_t steps;
  uint32_t num_plans;
  uint32_t order;  // a StepOrder
  uint64_t total_bytes;
};

struct ChainEntry {
  uint64_t offset;
  uint64_t size;
};

static_assert(offsetof(PlanHeader, checksum) == 8 && offsetof(PlanHeader, total_bytes) == 24);
static_assert(offsetof(PlanHeader, image_hash) == 40 && offsetof(PlanHeader, kernel) == 88);
static_assert(offsetof(PlanHeader, entry) == 152 && offsetof(PlanHeader, grid) == 248);
static_assert(offsetof(PlanHeader, shared_bytes) == 284 && offsetof(PlanHeader, backend) == 308);
static_assert(sizeof(PlanHeader) == 320);
static_assert(sizeof(FieldRecord) == 48 && offsetof(FieldRecord, type) == 40);
static_assert(sizeof(PatchRecord) == 40 && offsetof(PatchRecord, base) == 8);
static_assert(sizeof(RelocRecord) == 72 && offsetof(RelocRecord, offset) == 40);
static_assert(sizeof(ChainHeader) == 40 && offsetof(ChainHeader, total_bytes) == 32);
static_assert(sizeof(ChainEntry) == 16);

}  // namespace sdm::plancap
