#include "plancap/cuda/launch_walk.h"

#include "plancap/error.h"

namespace sdm::plancap::cuda {

std::string launch_place(const Chain& chain, int64_t step, size_t index) {
  const Plan& plan = chain.plans()[index]->plan();
  return cat("chain: step ", step, ", plan ", index, " (", plan.kernel_name(), ", ", plan.entry(),
             "): ");
}

}  // namespace sdm::plancap::cuda
