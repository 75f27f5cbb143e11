#include "bindings/bindings.h"
#include "kernels/blas_gemm/blas_gemm.h"
#include "plancap/loaded_library.h"

namespace py = pybind11;

namespace sdm::bindings {

void bind_blas_gemm(py::module_& module) {
  module.def("library_changes", &plancap::library_changes);
  module.def("plan_blas_gemm", [](const TensorRef& d_u, const TensorRef& x, const TensorRef& d_dv,
                                  int64_t num_parallel, int64_t steps) {
    BlasGemmArgs args;
    args.d_u = d_u;
    args.x = x;
    args.d_dv = d_dv;
    args.num_parallel = num_parallel;
    args.steps = steps;
    return std::const_pointer_cast<plancap::BoundPlan>(
        record("blas_gemm", blas_gemm, args, d_u.device));
  });
}

}  // namespace sdm::bindings
