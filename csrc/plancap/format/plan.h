// A plan: one recorded launch, validated once when it is decoded.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plancap/format/kernel_info.h"

namespace sdm::plancap {

// A number of a parameter block that follows the number of tokens, by name.
using LengthNumber = std::pair<std::string, int64_t>;

class Plan {
 public:
  // Checks everything that can be checked without a device; throws kPlan naming the record and
  // byte.
  static std::shared_ptr<const Plan> decode(std::vector<std::byte> bytes);

  // The plan that its launcher records for so many steps, on operands that hold exactly these:
  // numbers that the launcher is given by name, others and extents as they follow. Checked as
  // decode() does. Throws kPlan for a plan that has no other length, or what the launcher throws
  // for the length.
  std::shared_ptr<const Plan> resized(uint32_t steps, std::span<const LengthNumber> numbers) const;

  const PlanHeader& header() const { return header_; }
  const KernelInfo& kernel() const { return *kernel_; }
  Backend backend() const { return static_cast<Backend>(header_.backend); }
  std::span<const FieldRecord> fields() const { return fields_; }
  std::span<const PatchRecord> patches() const { return patches_; }
  std::span<const RelocRecord> relocs() const { return relocs_; }
  std::span<const std::byte> params() const;
  size_t params_offset() const;  // the byte at which the parameter block starts
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string kernel_name() const;  // header_.kernel as a string
  std::string entry() const;        // header_.entry as a string
  LaunchConfig config() const;
  bool library() const { return (header_.flags & kFlagLibrary) != 0; }
  bool empty() const { return config().grid.volume() == 0; }  // an empty grid: nothing to do

 private:
  friend class PlanResize;
  Plan() = default;
  void check_lengths() const;  // of patches and relocations, against the header's steps
  // The byte at which a record starts.
  size_t fields_offset(size_t index) const;
  size_t patches_offset(size_t index) const;
  size_t relocs_offset(size_t index) const;
  std::vector<std::byte> bytes_;
  PlanHeader header_{};
  const KernelInfo* kernel_ = nullptr;
  std::vector<FieldRecord> fields_;
  std::vector<PatchRecord> patches_;
  std::vector<RelocRecord> relocs_;
};

// A name in a fixed-size, zero-padded field.
template <size_t N>
std::string fixed_name(const char (&name)[N]) {
  size_t length = 0;
  while (length < N && name[length] != 0) ++length;
  return std::string(name, length);
}

}  // namespace sdm::plancap
