#include "plancap/run/chain.h"

#include <algorithm>
#include <chrono>

#include "plancap/base/error.h"
#include "plancap/run/backends.h"
#include "plancap/run/early_starts.h"

namespace sdm::plancap {
namespace {

const char* backend_name(Backend backend) { return backend == Backend::kHost ? "host" : "cuda"; }

}  // namespace

void check_together(std::span<const std::shared_ptr<const Plan>> plans, uint32_t steps) {
  if (plans.empty()) throw Error(ErrorKind::kPlan, "chain: expected at least one plan, got none");
  if (steps < 1) throw Error(ErrorKind::kPlan, "chain: expected at least one step, got 0");
  const Plan& first = *plans.front();
  for (size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = *plans[i];
    const auto refuse = [&](const std::string& expected, const std::string& given) {
      throw Error(ErrorKind::kPlan, cat("chain: plan ", i, " (", plan.kernel_name(), "): expected ",
                                        expected, ", ", given));
    };
    if (plan.header().steps < steps) {
      refuse(cat("to cover ", steps, " steps"), cat("covers ", plan.header().steps));
    }
    if (plan.backend() != first.backend()) {
      refuse(cat("the ", backend_name(first.backend()), " backend"),
             cat("got ", backend_name(plan.backend())));
    }
    if (!std::ranges::equal(plan.header().device_uuid, first.header().device_uuid)) {
      refuse("the device of plan 0", "was recorded on another one");
    }
  }
}

Chain::Chain(BoundPlans plans, uint32_t steps, StepOrder order)
    : plans_(std::move(plans)), steps_(steps), order_(order) {
  std::vector<std::shared_ptr<const Plan>> unbound;
  for (const auto& plan : plans_) unbound.push_back(plan->shared_plan());
  check_together(unbound, steps_);
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i]->device() == device()) continue;
    throw Error(ErrorKind::kPlan,
                cat("chain: plan ", i, " (", unbound[i]->kernel_name(), "): expected operands on ",
                    device_name(device()), ", got ", device_name(plans_[i]->device())));
  }
  early_starts_ = plancap::early_starts(plans_, steps_, order_);
  if (backend() == Backend::kCuda) window_ = make_shared_window();
}

std::shared_ptr<Chain> Chain::rebind(std::span<const OperandRef> operands) const {
  BoundPlans plans;
  plans.reserve(plans_.size());
  for (const auto& plan : plans_) plans.push_back(plan->rebind(operands));
  return with(std::move(plans), steps_);
}

std::shared_ptr<Chain> Chain::rebind(std::span<const OperandRef> operands, uint32_t steps,
                                     std::span<const LengthNumber> numbers) const {
  BoundPlans plans;
  plans.reserve(plans_.size());
  for (const auto& plan : plans_) {
    plans.push_back(plan->rebind(operands, plan->plan().resized(steps, numbers)));
  }
  return with(std::move(plans), steps);
}

// The same launches: the same nodes of a window, and with the same early starts the same edges.
std::shared_ptr<Chain> Chain::with(BoundPlans plans, uint32_t steps) const {
  auto chain = std::make_shared<Chain>(std::move(plans), steps, order_);
  if (chain->early_starts_ == early_starts_) chain->window_ = window_;
  return chain;
}

bool Chain::has_library_step() const {
  return std::any_of(plans_.begin(), plans_.end(),
                     [](const auto& bound) { return bound->plan().library(); });
}

uint64_t Chain::launches_per_step() const {
  return static_cast<uint64_t>(
      std::ranges::count_if(plans_, [](const auto& bound) { return !bound->plan().empty(); }));
}

Chain::Blocks Chain::copy_params() const {
  SDM_INTERNAL_CHECK(backend() == Backend::kHost, "a host run of a cuda chain");
  Blocks params;
  for (const auto& plan : plans_) params.emplace_back(plan->params().begin(), plan->params().end());
  return params;
}

// The launches of step ti; after_launch(plan index) follows each.
template <typename AfterLaunch>
void Chain::launch_step(Blocks& params, int64_t ti, const AfterLaunch& after_launch) const {
  for (size_t i = 0; i < plans_.size(); ++i) {
    const Plan& plan = plans_[i]->plan();
    if (plan.empty()) continue;
    for (const ResolvedPatch& patch : plans_[i]->patches()) patch.apply(params[i].data(), ti);
    plan.kernel().host(params[i].data());
    after_launch(i);
  }
}

// Every step in the chain's order; nothing is allocated per step.
template <typename AfterLaunch>
void Chain::walk_host(const AfterLaunch& after_launch) const {
  Blocks params = copy_params();
  for (int64_t index = 0; index < steps_; ++index) {
    launch_step(params, step_at(index), after_launch);
  }
}

void Chain::run_host() const {
  walk_host([](size_t) {});
}

void Chain::run_host_step(int64_t ti) const {
  SDM_EXPECT(ti >= 0 && ti < steps_, kValue, "chain", "ti", cat("a step in 0..", steps_ - 1), ti);
  Blocks params = copy_params();
  launch_step(params, ti, [](size_t) {});
}

std::vector<LaunchTime> Chain::run_host_timed() const {
  using Clock = std::chrono::steady_clock;
  const auto now = [] {
    const auto since = Clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  };
  std::vector<LaunchTime> times;
  times.reserve(launches());
  int64_t start = now();
  walk_host([&](size_t plan) {
    const int64_t end = now();
    times.push_back({static_cast<uint32_t>(plan), start, end});
    start = end;
  });
  return times;
}

}  // namespace sdm::plancap
