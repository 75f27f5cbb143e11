#include "kernels/step/step_kernels.h"

#include "kernels/step/fx_read/fx_read.h"
#include "kernels/step/fx_write/fx_write.h"
#include "kernels/step/gx_gds/gx_gds.h"
#include "kernels/step/gx_gemm/gx_gemm.h"
#include "kernels/step/gx_gwr/gx_gwr.h"
#include "kernels/step/gx_pa2/gx_pa2.h"

namespace sdm {

std::span<const StepKernel* const> step_kernels() {
  static constexpr const StepKernel* kKernels[] = {&kGxGwr, &kGxGemm, &kGxPa2,
                                                   &kGxGds, &kFxRead, &kFxWrite};
  return kKernels;
}

const StepKernel* find_step_kernel(std::string_view name) {
  for (const StepKernel* kernel : step_kernels()) {
    if (name == kernel->name) return kernel;
  }
  return nullptr;
}

}  // namespace sdm
