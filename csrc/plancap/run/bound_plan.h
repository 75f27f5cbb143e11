// A plan with addresses: what the executor runs.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plancap/capture/sink.h"
#include "plancap/format/plan.h"

namespace sdm::plancap {

// What a backend made of a plan for its device; only the backend knows what is in it.
struct BackendLaunch {
  virtual ~BackendLaunch() = default;
};

struct ResolvedPatch {
  uint32_t offset;  // into the parameter block
  PatchKind kind;
  int64_t base;  // for a pointer: the bound address is added by address
  int64_t stride;
  int64_t lowest;
  int64_t highest;
  uint64_t address;  // 0 unless kind is kPointer

  // Writes value(ti) into a copy of the parameter block.
  void apply(std::byte* params, int64_t ti) const;
};

// What launches touch through one of their pointers.
struct Touch {
  uint64_t start;  // the first byte's address
  uint64_t bytes;  // of all steps, or of one where each has a share of its own
  uint64_t
      step_stride;  // 0: any part of the bytes, in every step; else step ti's are ti of these on
  bool written;
  bool early;  // loaded before the wait for the launch ahead
};

// An operand by name, held elsewhere.
struct OperandRef {
  std::string_view name;
  const TensorRef* tensor;
};

class BoundPlan {
 public:
  // Checks every operand's device, dtype, contiguity, extent and alignment against what was
  // recorded, and that nothing written overlaps another operand. Throws kPlan; binds all or
  // nothing. A CUDA plan's device function is loaded here, so that running loads nothing; throws
  // kCuda when it cannot be.
  static std::shared_ptr<const BoundPlan> bind(std::shared_ptr<const Plan> plan,
                                               const std::vector<NamedTensor>& operands);

  // The same plan with other operands: the same checks, but on this one's device nothing is looked
  // up or loaded. Operands that the plan does not name are passed over.
  std::shared_ptr<const BoundPlan> rebind(std::span<const OperandRef> operands) const {
    return rebind(operands, plan_);
  }

  // The same for what Plan::resized() made of the plan, whose launch is this one's.
  std::shared_ptr<const BoundPlan> rebind(std::span<const OperandRef> operands,
                                          std::shared_ptr<const Plan> plan) const;

  const Plan& plan() const { return *plan_; }
  std::shared_ptr<const Plan> shared_plan() const { return plan_; }
  Device device() const { return device_; }
  std::span<const std::byte> params() const { return params_; }
  std::span<const ResolvedPatch> patches() const { return patches_; }
  std::span<const Touch> touches() const { return touches_; }
  const std::shared_ptr<const BackendLaunch>& prepared() const { return prepared_; }

 private:
  BoundPlan() = default;
  static std::shared_ptr<BoundPlan> place(std::shared_ptr<const Plan> plan,
                                          std::span<const OperandRef> operands);
  std::shared_ptr<const Plan> plan_;
  Device device_;
  std::vector<std::byte> params_;
  std::vector<ResolvedPatch> patches_;
  std::vector<Touch> touches_;
  std::shared_ptr<const BackendLaunch> prepared_;  // null on the host backend
};

}  // namespace sdm::plancap
