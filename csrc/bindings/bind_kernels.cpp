// Every launcher twice: launch it now, or record it as a plan. Both take the same operands, so both
// go through the same checks.
#include "bindings/bindings.h"
#include "kernels/rows/plane_reduce/plane_reduce.h"
#include "kernels/rows/quantize_rows/quantize_rows.h"
#include "kernels/step/fx_read/fx_read.h"
#include "kernels/step/fx_write/fx_write.h"
#include "kernels/step/gx_gds/gx_gds.h"
#include "kernels/step/gx_gemm/gx_gemm.h"
#include "kernels/step/gx_gwr/gx_gwr.h"
#include "kernels/step/gx_pa2/gx_pa2.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

template <typename... Rest>
const TensorRef& first_of(const TensorRef& first, const Rest&...) {
  return first;
}

// Binds `name` and `plan_<name>`: the operands and sizes `make` takes, then ti and the stream, or
// steps and pdl.
template <typename Args, typename... Operands>
void bind_step_kernel(py::module_& module, const char* name,
                      void (*launcher)(plancap::Sink&, const Args&), Args (*make)(Operands...)) {
  module.def(name, [=](Operands... operands, int64_t ti, uintptr_t stream) {
    Args args = make(operands...);
    args.ti = ti;
    launch_now(launcher, args, first_of(operands...).device, stream);
  });
  module.def(("plan_" + std::string(name)).c_str(),
             [=](Operands... operands, int64_t steps, bool pdl) {
               Args args = make(operands...);
               args.steps = steps;
               args.pdl = pdl;
               return std::const_pointer_cast<plancap::BoundPlan>(
                   record(name, launcher, args, first_of(operands...).device));
             });
}

GxGemmArgs gemm_args(const TensorRef& d_u, const TensorRef& x, const TensorRef& d_dv,
                     int64_t num_parallel) {
  GxGemmArgs args;
  args.d_u = d_u;
  args.x = x;
  args.d_dv = d_dv;
  args.num_parallel = num_parallel;
  return args;
}

GxGwrArgs gwr_args(const TensorRef& grad, const TensorRef& delta, const TensorRef& pd,
                   const TensorRef& slots, const TensorRef& d_dv, const TensorRef& dpd,
                   int64_t num_parallel, int64_t chunk_size, int64_t num_tokens) {
  GxGwrArgs args;
  args.grad = grad;
  args.delta = delta;
  args.pd = pd;
  args.slots = slots;
  args.d_dv = d_dv;
  args.dpd = dpd;
  args.num_parallel = num_parallel;
  args.chunk_size = chunk_size;
  args.num_tokens = num_tokens;
  return args;
}

GxPa2Args pa2_args(const TensorRef& grad, const TensorRef& bank, const TensorRef& snap,
                   const TensorRef& d_u, const TensorRef& beta, const TensorRef& rec,
                   const TensorRef& out_eff, const TensorRef& out_g,
                   const std::optional<TensorRef>& kpay, const std::optional<TensorRef>& bpre,
                   const std::optional<TensorRef>& scales, std::optional<int64_t> snap_step_rows,
                   int64_t num_parallel, int64_t chunk_size, int64_t num_writes) {
  GxPa2Args args;
  args.grad = grad;
  args.bank = bank;
  args.snap = snap;
  args.d_u = d_u;
  args.beta = beta;
  args.kpay = kpay;
  args.rec = rec;
  args.out_eff = out_eff;
  args.out_g = out_g;
  args.bpre = bpre;
  args.scales = scales;
  args.snap_step_rows = snap_step_rows;
  args.num_parallel = num_parallel;
  args.chunk_size = chunk_size;
  args.num_writes = num_writes;
  return args;
}

GxGdsArgs gds_args(const TensorRef& grad, const TensorRef& bank, const TensorRef& gy,
                   const TensorRef& qrec, const TensorRef& dq, int64_t num_parallel,
                   int64_t chunk_size, int64_t num_reads) {
  GxGdsArgs args;
  args.grad = grad;
  args.bank = bank;
  args.gy = gy;
  args.qrec = qrec;
  args.dq = dq;
  args.num_parallel = num_parallel;
  args.chunk_size = chunk_size;
  args.num_reads = num_reads;
  return args;
}

FxReadArgs read_args(const TensorRef& bank, const TensorRef& v, const TensorRef& row_weights,
                     const TensorRef& residual, const TensorRef& reading, int64_t num_parallel,
                     int64_t chunk_size, int64_t num_writes, int64_t num_tokens) {
  FxReadArgs args;
  args.bank = bank;
  args.v = v;
  args.row_weights = row_weights;
  args.residual = residual;
  args.reading = reading;
  args.num_parallel = num_parallel;
  args.chunk_size = chunk_size;
  args.num_writes = num_writes;
  args.num_tokens = num_tokens;
  return args;
}

FxWriteArgs write_args(const TensorRef& bank, const TensorRef& delta, const TensorRef& updates,
                       const std::optional<TensorRef>& snap, const std::optional<TensorRef>& bpre,
                       int64_t num_parallel, int64_t chunk_size, int64_t num_writes) {
  FxWriteArgs args;
  args.bank = bank;
  args.delta = delta;
  args.updates = updates;
  args.snap = snap;
  args.bpre = bpre;
  args.num_parallel = num_parallel;
  args.chunk_size = chunk_size;
  args.num_writes = num_writes;
  return args;
}

void bind_plane_reduce(py::module_& module) {
  module.def("plane_reduce",
             [](const TensorRef& planes, const TensorRef& out,
                const std::optional<TensorRef>& factor, bool negate, int64_t group,
                int64_t num_tokens, int64_t num_parallel, int64_t chunk_size, uintptr_t stream) {
               PlaneReduceArgs args;
               args.planes = planes;
               args.out = out;
               args.factor = factor;
               args.negate = negate;
               args.group = group;
               args.num_tokens = num_tokens;
               args.num_parallel = num_parallel;
               args.chunk_size = chunk_size;
               launch_now(plane_reduce, args, planes.device, stream);
             });
}

}  // namespace

void bind_kernels(py::module_& module) {
  bind_step_kernel(module, "gx_gwr", gx_gwr, gwr_args);
  bind_step_kernel(module, "gx_gemm", gx_gemm, gemm_args);
  bind_step_kernel(module, "gx_pa2", gx_pa2, pa2_args);
  bind_step_kernel(module, "gx_gds", gx_gds, gds_args);
  bind_step_kernel(module, "fx_read", fx_read, read_args);
  bind_step_kernel(module, "fx_write", fx_write, write_args);
  bind_plane_reduce(module);
  module.def("quantize_rows", &quantize_rows, py::call_guard<py::gil_scoped_release>());
}

}  // namespace sdm::bindings
