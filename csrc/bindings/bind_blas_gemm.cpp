#include "bindings/bindings.h"
#include "kernels/step/blas_gemm/blas_gemm.h"
#include "plancap/base/loaded_library.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

// Status and value of `int getter(handle, int* value)` at each address; value 0 where it fails.
py::tuple ask_each(const std::vector<uintptr_t>& getters, uintptr_t handle) {
  py::tuple answers(2 * getters.size());
  for (size_t i = 0; i < getters.size(); ++i) {
    int value = 0;
    const auto getter = reinterpret_cast<int (*)(void*, int*)>(getters[i]);
    const int status = getter(reinterpret_cast<void*>(handle), &value);
    answers[2 * i] = status;
    answers[2 * i + 1] = status == 0 ? value : 0;
  }
  return answers;
}

}  // namespace

void bind_blas_gemm(py::module_& module) {
  module.def("ask_each", &ask_each);
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
