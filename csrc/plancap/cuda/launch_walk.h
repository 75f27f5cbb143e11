// The launches of a run, in order, each with its parameters patched.
#pragma once
#include "plancap/cuda/prepared_launch.h"
#include "plancap/run/chain.h"

namespace sdm::plancap::cuda {

struct WalkedLaunch {
  int64_t step;
  size_t plan;  // index in the chain
  const BoundPlan* bound;
  const PreparedLaunch* prepared;
  std::byte* params;  // patched for the step; valid during the visit
  bool programmatic;  // may start before the launch ahead of it has finished
};

// A run's way through the launches of a chain. It patches its own copy of the parameter blocks.
class LaunchWalk {
 public:
  explicit LaunchWalk(const Chain& chain)
      : chain_(chain), early_starts_(chain.early_starts().begin(), chain.early_starts().end()) {
    for (const auto& bound : chain.plans()) {
      params_.emplace_back(bound->params().begin(), bound->params().end());
    }
  }

  // Calls visit(launch) for the launches of the steps that run as numbers first .. end - 1.
  template <typename Visit>
  void visit(int64_t first, int64_t end, Visit&& visit) {
    for (int64_t index = first; index < end; ++index) {
      const int64_t ti = chain_.step_at(index);
      for (size_t i = 0; i < params_.size(); ++i) {
        const BoundPlan& bound = *chain_.plans()[i];
        if (bound.plan().empty()) continue;
        for (const ResolvedPatch& patch : bound.patches()) patch.apply(params_[i].data(), ti);
        const PreparedLaunch& prepared = cuda::prepared(bound);
        // An early launch loads what the kernel ahead of it leaves alone (early_starts.h). Only of
        // a kernel of this chain is that known, and that it waited for everything before itself.
        const bool early = after_kernel_ && early_starts_[i] != 0;
        after_kernel_ = prepared.kernel != nullptr;
        visit(WalkedLaunch{ti, i, &bound, &prepared, params_[i].data(), early});
      }
    }
  }

  // Something that this walk has not visited is ahead of the next launch. A visit may say so too.
  void begin_anew() { after_kernel_ = false; }

 private:
  const Chain& chain_;
  const std::vector<uint8_t> early_starts_;  // bytes: the loop reads them faster than bits
  std::vector<std::vector<std::byte>> params_;
  bool after_kernel_ = false;
};

// How many launches of a run come before that one.
uint64_t launches_before(const Chain& chain, int64_t step, size_t plan);

// "chain: step 17, plan 2 (gx_pa2, gx_pa2_bf16): ".
std::string launch_place(const Chain& chain, int64_t step, size_t plan);

}  // namespace sdm::plancap::cuda
