// A plan's parameter block as its kernel judges it: do the numbers in it stay inside what the
// relocations grant? The checksum finds damage; this finds a plan whose parts contradict each other
// before a kernel follows it out of an operand.
#pragma once
#include <initializer_list>
#include <span>
#include <string>

#include "plancap/format/kernel_info.h"
#include "plancap/format/plan.h"

namespace sdm::plancap {

// The product of sizes, or 2^64-1 when it is larger or one of them is negative.
uint64_t volume(std::initializer_list<int64_t> sizes);

class ParamView {
 public:
  ParamView(const Plan& plan, std::span<const std::byte> block) : plan_(plan), block_(block) {}

  // The block; its pointers are null.
  template <typename Params>
  const Params& get() const {
    return *reinterpret_cast<const Params*>(block_.data());
  }

  std::span<const std::byte> block() const { return block_; }

  Backend backend() const { return plan_.backend(); }
  LaunchConfig config() const { return plan_.config(); }
  std::string entry() const { return plan_.entry(); }

  // Whether a tensor belongs to this pointer field; otherwise the kernel gets a null pointer.
  bool has(const char* field) const { return find_reloc(field) != nullptr; }

  // Throws kPlan unless lowest <= value <= highest.
  void range(const char* field, int64_t value, int64_t lowest, int64_t highest) const;

  // The bytes of the field's operand from its address on; 0 when it has none.
  uint64_t extent(const char* field) const;

  // Throws kPlan unless the field's operand has this dtype.
  void dtype(const char* field, Dtype expected) const;

  // Throws kPlan unless the field's operand may be used so, holds `count` elements of T, and was
  // recorded as one that any step may touch anywhere.
  template <typename T>
  void reach(const char* field, Access access, uint64_t count) const {
    reach_bytes(field, access, alignof(T), bytes_of<T>(count));
  }

  // The same for an operand of which every step touches `count` elements, one share after the
  // other: exactly what was recorded, and up to `step` inside the operand.
  template <typename T>
  void share(const char* field, Access access, uint64_t count, int64_t step) const {
    share_bytes(field, access, alignof(T), bytes_of<T>(count), bytes_of<T>(count), step);
  }

  // Both in bytes; the shares of two steps start `stride` bytes apart.
  void reach_bytes(const char* field, Access access, uint32_t align, uint64_t bytes) const;
  void share_bytes(const char* field, Access access, uint32_t align, uint64_t bytes,
                   uint64_t stride, int64_t step) const;

  // Throws kPlan, naming the field, its byte in the plan and what is wrong with it.
  void expect(bool condition, const char* field, const std::string& expected,
              const std::string& given) const;

 private:
  template <typename T>
  static uint64_t bytes_of(uint64_t count) {
    return count >> 63 ? count : volume({sizeof(T), static_cast<int64_t>(count)});
  }
  const RelocRecord* find_reloc(const char* field) const;
  void inside(const char* field, Access access, uint32_t align, uint64_t bytes) const;

  const Plan& plan_;
  std::span<const std::byte> block_;
};

// Runs the kernel's check on the block with every patched field at its least value of any step,
// then with every one at its greatest: what a kernel reaches grows with each of its parameters.
void check_param_block(const Plan& plan);

}  // namespace sdm::plancap
