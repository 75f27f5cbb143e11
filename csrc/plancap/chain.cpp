#include "plancap/chain.h"

#include <algorithm>

#include "plancap/error.h"

namespace sdm::plancap {
namespace {

const char* backend_name(Backend backend) { return backend == Backend::kHost ? "host" : "cuda"; }

}  // namespace

Chain::Chain(std::vector<std::shared_ptr<const BoundPlan>> plans, uint32_t steps)
    : plans_(std::move(plans)), steps_(steps) {
  if (plans_.empty()) throw Error(ErrorKind::kPlan, "chain: expected at least one plan, got none");
  if (steps_ < 1) throw Error(ErrorKind::kPlan, "chain: expected at least one step, got 0");
  for (size_t i = 0; i < plans_.size(); ++i) {
    const Plan& plan = plans_[i]->plan();
    const std::string where = cat("chain: plan ", i, " (", plan.kernel_name(), "): ");
    if (plan.header().steps < steps_) {
      throw Error(ErrorKind::kPlan,
                  cat(where, "expected to cover ", steps_, " steps, covers ", plan.header().steps));
    }
    if (plan.backend() != backend()) {
      throw Error(ErrorKind::kPlan, cat(where, "expected the ", backend_name(backend()),
                                        " backend, got ", backend_name(plan.backend())));
    }
    if (!(plans_[i]->device() == device())) {
      throw Error(ErrorKind::kPlan, cat(where, "expected operands on ", device_name(device()),
                                        ", got ", device_name(plans_[i]->device())));
    }
  }
}

bool Chain::has_library_step() const {
  return std::any_of(plans_.begin(), plans_.end(),
                     [](const auto& bound) { return bound->plan().library(); });
}

uint64_t Chain::launches() const {
  uint64_t per_step = 0;
  for (const auto& plan : plans_) per_step += plan->plan().empty() ? 0 : 1;
  return per_step * steps_;
}

void Chain::run_host() const {
  SDM_INTERNAL_CHECK(backend() == Backend::kHost, "run_host on a cuda chain");
  // One private copy of each parameter block; nothing is allocated per step.
  std::vector<std::vector<std::byte>> params;
  for (const auto& plan : plans_) params.emplace_back(plan->params().begin(), plan->params().end());
  for (int64_t ti = int64_t{steps_} - 1; ti >= 0; --ti) {
    for (size_t i = 0; i < plans_.size(); ++i) {
      const Plan& plan = plans_[i]->plan();
      if (plan.empty()) continue;
      for (const ResolvedPatch& patch : plans_[i]->patches()) patch.apply(params[i].data(), ti);
      plan.kernel().host(params[i].data());
    }
  }
}

}  // namespace sdm::plancap
