// What a step kernel takes: a table for each, with a row for every member of its parameter block,
// in order. Field table, checks of a call, pointers and numbers in the block, relocations, the
// check of a plan and what Python knows of the kernel all come from it (step_kernel.h).
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

#include "plancap/capture/tensor_ref.h"
#include "plancap/format/kernel_info.h"

namespace sdm {

// P sequences, C tokens a chunk, N chunks, E entries a token. A step touches its P chunks' part,
// one step's after another's; of bank and grad rows, any step may touch any.
enum class Form : uint8_t {
  kOdd,             // the kernel's own functions say it
  kBankRows,        // float32 or bfloat16 [rows, hd]; any step may touch any of it
  kGradRows,        // the bank's [rows, hd], float32 or of the bank's type; likewise
  kTokenRows,       // float32 [N*C, hd] or [N, C, hd]
  kBankTokenRows,   // the same of the bank's type
  kChunkRows,       // float32 [N, C, hd]
  kChunkSquares,    // float32 [N, C, C]
  kTokens,          // float32 [N*C]
  kTokenEntries,    // float32 or int32 [N*C, E]
  kRecords,         // int32 [N, C*E, 4]
  kRowWeights,      // int32 [N*C, E, 2]
  kPlanes,          // float32 [num_slices, N*C*E], or any shape where there is one slice
  kSnapshotRows,    // [N*snap_chunk_rows, hd] of the bank's type: dense snapshots
  kSnapshotCounts,  // int32 [N, ceil(C*E/32) + 1]
};

enum class Entries : uint8_t { kNone, kWrites, kReads, kBoth };

struct OperandForm {
  Form form = Form::kOdd;
  Entries entries = Entries::kNone;
  Dtype dtype = Dtype::kFloat32;  // of kTokenEntries
};

inline constexpr OperandForm kOddForm{Form::kOdd};
inline constexpr OperandForm kBankRows{Form::kBankRows};
inline constexpr OperandForm kGradRows{Form::kGradRows};
inline constexpr OperandForm kTokenRows{Form::kTokenRows};
inline constexpr OperandForm kBankTokenRows{Form::kBankTokenRows};
inline constexpr OperandForm kChunkRows{Form::kChunkRows};
inline constexpr OperandForm kChunkSquares{Form::kChunkSquares};
inline constexpr OperandForm kTokenValues{Form::kTokens};
inline constexpr OperandForm kWriteValues{Form::kTokenEntries, Entries::kWrites};
inline constexpr OperandForm kWriteSlots{Form::kTokenEntries, Entries::kWrites, Dtype::kInt32};
inline constexpr OperandForm kWriteRecords{Form::kRecords, Entries::kWrites};
inline constexpr OperandForm kReadRecords{Form::kRecords, Entries::kReads};
inline constexpr OperandForm kRowWeights{Form::kRowWeights, Entries::kBoth};
inline constexpr OperandForm kWritePlanes{Form::kPlanes, Entries::kWrites};
inline constexpr OperandForm kReadPlanes{Form::kPlanes, Entries::kReads};
inline constexpr OperandForm kSnapshotRows{Form::kSnapshotRows, Entries::kWrites};
inline constexpr OperandForm kSnapshotCounts{Form::kSnapshotCounts, Entries::kWrites};

// One member of the block: an operand, or a number.
struct StepRow {
  plancap::FieldInfo field;
  const char* operand = nullptr;  // what callers call it; null: a number
  OperandForm form = {};
  plancap::Access access = plancap::Access::kRead;
  bool early = false;     // loaded before the wait for the launch ahead
  bool measured = false;  // its shape tells sizes that no caller gives: N, hd or E (step_sizes.cpp)
  bool given = false;     // a number that callers give; the others follow from the operands
  bool optional = false;
  const char* word = nullptr;  // what callers may give for the number, by name; null: nothing

  constexpr bool is(std::string_view name) const { return name == field.name; }
  constexpr StepRow loaded_early() const {
    StepRow row = *this;
    row.early = true;
    return row;
  }
  constexpr StepRow named(const char* by) const {
    StepRow row = *this;
    row.word = by;
    return row;
  }
  constexpr StepRow measures() const {
    StepRow row = *this;
    row.measured = true;
    return row;
  }
};

constexpr StepRow operand_row(plancap::FieldInfo field, const char* operand, OperandForm form,
                              plancap::Access access) {
  const bool optional = (field.flags & plancap::kFieldNullable) != 0;
  return {field, operand, form, access, false, false, false, optional};
}
constexpr StepRow number_row(plancap::FieldInfo field, bool given, bool optional) {
  return {field, nullptr, {}, plancap::Access::kRead, false, false, given, optional};
}

// Operands by member, name, form and access; a kernel takes null for an optional one.
#define SDM_OPERAND(Struct, member, name, form, access) \
  ::sdm::operand_row(SDM_FIELD(Struct, member), name, form, ::sdm::plancap::Access::access)
#define SDM_OPTIONAL_OPERAND(Struct, member, name, form, access) \
  ::sdm::operand_row(SDM_NULLABLE_FIELD(Struct, member), name, form, ::sdm::plancap::Access::access)
// Numbers that callers give, that they may give, and that follow from the operands.
#define SDM_SIZE(Struct, member) ::sdm::number_row(SDM_FIELD(Struct, member), true, false)
#define SDM_OPTIONAL_SIZE(Struct, member) ::sdm::number_row(SDM_FIELD(Struct, member), true, true)
// A row format, which callers may name.
#define SDM_FORMAT(Struct, member, word) \
  ::sdm::number_row(SDM_FIELD(Struct, member), false, true).named(word)
#define SDM_NUMBER(Struct, member) ::sdm::number_row(SDM_FIELD(Struct, member), false, false)

// The table as the runtime wants it.
template <const auto& kRows>
inline constexpr auto kFieldsOf = [] {
  std::array<plancap::FieldInfo, std::size(kRows)> fields{};
  for (size_t i = 0; i < fields.size(); ++i) fields[i] = kRows[i].field;
  return fields;
}();

template <const auto& kRows>
inline constexpr auto kEarlyOf = [] {
  constexpr size_t count = [] {
    size_t found = 0;
    for (const StepRow& row : kRows) found += row.early;
    return found;
  }();
  std::array<const char*, count> names{};
  size_t next = 0;
  for (const StepRow& row : kRows) {
    if (row.early) names[next++] = row.field.name;
  }
  return names;
}();

}  // namespace sdm
