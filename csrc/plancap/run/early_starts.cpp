#include "plancap/run/early_starts.h"

#include <algorithm>

namespace sdm::plancap {
namespace {

using Wide = __int128;

// Rounded down; the divisor is positive.
Wide floor_divide(Wide a, Wide b) { return a / b - (a % b < 0 ? 1 : 0); }

// Whether in any step ti from `first` to `last` some byte that is loaded in step ti is one that is
// written in step ti + lag.
bool meet(const Touch& loaded, const Touch& written, int64_t lag, int64_t first, int64_t last) {
  if (first > last || loaded.bytes == 0 || written.bytes == 0) return false;
  // From the start of what is loaded to the start of what is written: at_zero + ti * slope.
  Wide slope = Wide{written.step_stride} - loaded.step_stride;
  Wide at_zero = Wide{written.start} + Wide{written.step_stride} * lag - loaded.start;
  if (slope < 0) {  // the steps counted from the other end
    at_zero += slope * (Wide{first} + last);
    slope = -slope;
  }
  const Wide least = -Wide{written.bytes} + 1, most = Wide{loaded.bytes} - 1;
  if (slope == 0) return least <= at_zero && at_zero <= most;
  const Wide ti = std::max<Wide>(first, -floor_divide(at_zero - least, slope));
  return ti <= last && at_zero + slope * ti <= most;
}

bool loads_what_is_written(const BoundPlan& plan, const BoundPlan& ahead, int64_t lag,
                           uint32_t steps) {
  const int64_t first = std::max<int64_t>(0, -lag);
  const int64_t last = int64_t{steps} - 1 - std::max<int64_t>(0, lag);
  for (const Touch& loaded : plan.touches()) {
    if (!loaded.early) continue;
    for (const Touch& written : ahead.touches()) {
      if (written.written && meet(loaded, written, lag, first, last)) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<bool> early_starts(std::span<const std::shared_ptr<const BoundPlan>> plans,
                               uint32_t steps, StepOrder order) {
  std::vector<bool> early(plans.size());
  const BoundPlan* ahead = nullptr;  // the last launch of the step that runs before
  for (const auto& bound : plans) {
    if (!bound->plan().empty()) ahead = bound.get();
  }
  int64_t lag = order == StepOrder::kAscending ? -1 : 1;
  for (size_t i = 0; i < plans.size(); ++i) {
    const BoundPlan& bound = *plans[i];
    if (bound.plan().empty()) continue;
    early[i] =
        bound.plan().config().programmatic && !loads_what_is_written(bound, *ahead, lag, steps);
    ahead = &bound;
    lag = 0;
  }
  return early;
}

}  // namespace sdm::plancap
