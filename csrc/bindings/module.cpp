#include "bindings/bindings.h"
#include "kernels/register_kernels.h"
#ifdef SDM_WITH_CUDA
#include "plancap/cuda/cuda_backend.h"
#endif

PYBIND11_MODULE(_core, module) {
  module.doc() = "The plan-capture runtime: plans, chains and kernel launchers.";
  sdm::register_kernels();
#ifdef SDM_WITH_CUDA
  sdm::plancap::cuda::register_backend();
#endif
  sdm::bindings::bind_errors(module);
  sdm::bindings::bind_tensors(module);
  sdm::bindings::bind_devices(module);
  sdm::bindings::bind_plans(module);
  sdm::bindings::bind_chains(module);
  sdm::bindings::bind_format(module);
  sdm::bindings::bind_kernels(module);
  sdm::bindings::bind_chunks(module);
  sdm::bindings::bind_rows(module);
  sdm::bindings::bind_linear(module);
  sdm::bindings::bind_layer(module);
  sdm::bindings::bind_blas_gemm(module);
  sdm::bindings::bind_graphs(module);
#ifdef SDM_WITH_TESTING
  sdm::bindings::bind_testing(module);
#endif
}
