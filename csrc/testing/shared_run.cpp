#include "testing/shared_run.h"

namespace sdm::testing {

SharedRun::SharedRun(std::shared_ptr<const plancap::Chain> chain) : chain_(std::move(chain)) {
  for (const auto& plan : chain_->plans()) {
    params_.emplace_back(plan->params().begin(), plan->params().end());
  }
}

void SharedRun::run() {
  for (int64_t ti = int64_t{chain_->steps()} - 1; ti >= 0; --ti) {
    for (size_t i = 0; i < params_.size(); ++i) {
      const plancap::BoundPlan& plan = *chain_->plans()[i];
      for (const auto& patch : plan.patches()) patch.apply(params_[i].data(), ti);
      plan.plan().kernel().host(params_[i].data());
    }
  }
}

}  // namespace sdm::testing
