#include "plancap/cuda/launch_walk.h"

#include <algorithm>

#include "plancap/base/error.h"

namespace sdm::plancap::cuda {

uint64_t launches_before(const Chain& chain, int64_t step, size_t plan) {
  const bool ascending = chain.order() == StepOrder::kAscending;
  const auto steps = static_cast<uint64_t>(ascending ? step : int64_t{chain.steps()} - 1 - step);
  const auto before = chain.plans().first(plan);
  const auto launched =
      std::ranges::count_if(before, [](const auto& bound) { return !bound->plan().empty(); });
  return steps * chain.launches_per_step() + static_cast<uint64_t>(launched);
}

std::string launch_place(const Chain& chain, int64_t step, size_t index) {
  const Plan& plan = chain.plans()[index]->plan();
  return cat("chain: step ", step, ", plan ", index, " (", plan.kernel_name(), ", ", plan.entry(),
             "): ");
}

}  // namespace sdm::plancap::cuda
