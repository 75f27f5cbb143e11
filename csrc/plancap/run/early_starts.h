// Which launches of a chain may start before the one ahead of them has ended.
//
// A kernel that is launched early loads some operands before it waits for the launch ahead of it
// (KernelInfo::early). Whatever is further ahead has ended by then, since a kernel lets its
// dependents start only after its own wait. So the launch ahead must not write those operands.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plancap/run/bound_plan.h"

namespace sdm::plancap {

// By plan: whether it asks for an early start and the launch ahead of it, in the same step or for
// the first plan in the step that runs before, writes nothing that it loads early. All false on the
// host.
std::vector<bool> early_starts(std::span<const std::shared_ptr<const BoundPlan>> plans,
                               uint32_t steps, StepOrder order);

}  // namespace sdm::plancap
