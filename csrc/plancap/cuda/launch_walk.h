// The launches of a run, in order, each with its parameters patched.
#pragma once
#include "plancap/chain.h"
#include "plancap/cuda/prepared_launch.h"

namespace sdm::plancap::cuda {

struct WalkedLaunch {
  int64_t step;
  size_t plan;  // index in the chain
  const BoundPlan* bound;
  const PreparedLaunch* prepared;
  std::byte* params;  // patched for the step; valid during the visit
  bool programmatic;  // may start before the launch ahead of it has finished
};

// Calls visit(launch) for every launch that a run issues.
template <typename Visit>
void walk_launches(const Chain& chain, Visit&& visit) {
  std::vector<std::vector<std::byte>> params;
  for (const auto& bound : chain.plans()) {
    params.emplace_back(bound->params().begin(), bound->params().end());
  }
  bool after_kernel = false;
  for (int64_t index = 0; index < chain.steps(); ++index) {
    const int64_t ti = chain.step_at(index);
    for (size_t i = 0; i < params.size(); ++i) {
      const BoundPlan& bound = *chain.plans()[i];
      if (bound.plan().empty()) continue;
      for (const ResolvedPatch& patch : bound.patches()) patch.apply(params[i].data(), ti);
      const PreparedLaunch& prepared = *bound.prepared();
      // An early launch reads data that the kernel ahead of it leaves alone. Only for a kernel of
      // this chain is it known what that is, and that it waited for everything before itself.
      visit(WalkedLaunch{ti, i, &bound, &prepared, params[i].data(),
                         after_kernel && prepared.config.programmatic});
      after_kernel = prepared.kernel != nullptr;
    }
  }
}

// "chain: step 17, plan 2 (gx_pa2, gx_pa2_bf16): ".
std::string launch_place(const Chain& chain, int64_t step, size_t plan);

}  // namespace sdm::plancap::cuda
