// A chain: plans in order, run for ti = steps-1 .. 0, or for 0 .. steps-1 (StepOrder).
#pragma once
#include <memory>
#include <vector>

#include "plancap/run/bound_plan.h"

namespace sdm::plancap {

// What a backend keeps for all chains of one recording; only the backend knows what is in it.
class BackendWindow {
 public:
  virtual ~BackendWindow() = default;
};

// Whether a run on a CUDA device takes its launches several steps at a time: where single launches
// do not keep up, never, or from the first step on. No bit depends on it.
enum class Windows { kAuto, kNever, kAlways };

// Throws kPlan for no plan, no step, plans of two backends or devices, or more steps than a plan
// covers.
void check_together(std::span<const std::shared_ptr<const Plan>> plans, uint32_t steps);

// When a launch ran, in nanoseconds of a monotonic clock.
struct LaunchTime {
  uint32_t plan;
  int64_t start_ns;
  int64_t end_ns;
};

class Chain {
 public:
  using BoundPlans = std::vector<std::shared_ptr<const BoundPlan>>;

  // Throws kPlan for plans that do not belong together or operands on two devices.
  Chain(BoundPlans plans, uint32_t steps, StepOrder order = StepOrder::kDescending);

  // The same chain on other operands. Throws kPlan as BoundPlan::rebind does.
  std::shared_ptr<Chain> rebind(std::span<const OperandRef> operands) const;

  // The same of another length: every plan resized(). Throws as that and rebind() do.
  std::shared_ptr<Chain> rebind(std::span<const OperandRef> operands, uint32_t steps,
                                std::span<const LengthNumber> numbers) const;

  std::span<const std::shared_ptr<const BoundPlan>> plans() const { return plans_; }
  uint32_t steps() const { return steps_; }
  StepOrder order() const { return order_; }
  // The step that runs as number `index`.
  int64_t step_at(int64_t index) const {
    return order_ == StepOrder::kAscending ? index : int64_t{steps_} - 1 - index;
  }
  Backend backend() const { return plans_.front()->plan().backend(); }
  Device device() const { return plans_.front()->device(); }

  // Shared by a chain and all that rebind() makes of it with the same early starts, of any length;
  // null on the host backend.
  const std::shared_ptr<BackendWindow>& shared_window() const { return window_; }

  // By plan: whether its launches may start before the launch ahead of them has ended.
  const std::vector<bool>& early_starts() const { return early_starts_; }

  // Whether a plan is a call into a library, which needs the library's handle.
  bool has_library_step() const;

  // Launches of a step, and of one run: empty grids are not launched.
  uint64_t launches_per_step() const;
  uint64_t launches() const { return launches_per_step() * steps_; }

  // Runs every step on the host. Every run patches its own copy of the parameters, so that threads
  // may run one chain at once (their operands are then shared: that is the caller's race to avoid).
  void run_host() const;

  // The launches of one step alone. Throws kValue for a step that the chain has not.
  void run_host_step(int64_t ti) const;

  // run_host, and when each launch ran.
  std::vector<LaunchTime> run_host_timed() const;

 private:
  using Blocks = std::vector<std::vector<std::byte>>;  // a private copy of each parameter block

  std::shared_ptr<Chain> with(BoundPlans plans, uint32_t steps) const;
  Blocks copy_params() const;
  template <typename AfterLaunch>
  void launch_step(Blocks& params, int64_t ti, const AfterLaunch& after_launch) const;
  template <typename AfterLaunch>
  void walk_host(const AfterLaunch& after_launch) const;

  BoundPlans plans_;
  uint32_t steps_;
  StepOrder order_;
  std::vector<bool> early_starts_;
  std::shared_ptr<BackendWindow> window_;
};

// The chain file: unbound plans, a step count and which step runs first.
std::vector<std::byte> encode_chain(std::span<const std::shared_ptr<const Plan>> plans,
                                    uint32_t steps, StepOrder order = StepOrder::kDescending);

struct DecodedChain {
  std::vector<std::shared_ptr<const Plan>> plans;
  uint32_t steps = 0;
  StepOrder order = StepOrder::kDescending;
};
DecodedChain decode_chain(std::span<const std::byte> bytes);

}  // namespace sdm::plancap
