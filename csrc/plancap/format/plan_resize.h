// A plan on its way to another number of steps. What follows from that number whatever the kernel
// is changes here: patches go on to the last step, and an operand holds a share for each step. The
// kernel's own function (KernelInfo::resize) does the rest.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "plancap/format/plan.h"

namespace sdm::plancap {

class PlanResize {
 public:
  uint32_t steps() const { return plan_.header_.steps; }

  // What the caller gives; none for a name that is missing.
  std::optional<int64_t> number(std::string_view name) const;

  // The parameter block, its pointers null.
  std::span<std::byte> block() { return block_; }
  std::span<const std::byte> block() const { return block_; }

  // The operand of a pointer field now ends that many bytes from its address; a field without an
  // operand is left alone.
  void set_extent(std::string_view field, uint64_t bytes);

 private:
  friend class Plan;
  PlanResize(Plan& plan, std::span<const LengthNumber> numbers);
  void follow_steps(uint32_t steps);
  void write_back();

  Plan& plan_;
  std::span<const LengthNumber> numbers_;
  std::span<std::byte> block_;
};

}  // namespace sdm::plancap
