// Every launcher twice: launch it now, or record it as a plan. Both take the same operands, so both
// go through the same checks.
#include "bindings/bindings.h"
#include "kernels/gx_gemm/gx_gemm.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

void bind_gx_gemm(py::module_& module) {
  const auto make = [](const TensorRef& d_u, const TensorRef& x, const TensorRef& d_dv,
                       int64_t num_parallel) {
    GxGemmArgs args;
    args.d_u = d_u;
    args.x = x;
    args.d_dv = d_dv;
    args.num_parallel = num_parallel;
    return args;
  };
  module.def("gx_gemm", [make](const TensorRef& d_u, const TensorRef& x, const TensorRef& d_dv,
                               int64_t num_parallel, int64_t ti, uintptr_t stream) {
    GxGemmArgs args = make(d_u, x, d_dv, num_parallel);
    args.ti = ti;
    launch_now(gx_gemm, args, d_u.device, stream);
  });
  module.def("plan_gx_gemm", [make](const TensorRef& d_u, const TensorRef& x, const TensorRef& d_dv,
                                    int64_t num_parallel, int64_t steps, bool pdl) {
    GxGemmArgs args = make(d_u, x, d_dv, num_parallel);
    args.steps = steps;
    args.pdl = pdl;
    return std::const_pointer_cast<plancap::BoundPlan>(
        record("gx_gemm", gx_gemm, args, d_u.device));
  });
}

}  // namespace

void bind_kernels(py::module_& module) { bind_gx_gemm(module); }

}  // namespace sdm::bindings
