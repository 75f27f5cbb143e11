// Step kernels by name, launched now or recorded as a plan: both take the same operands and go
// through the same checks. And plane_reduce, which no plan holds.
#include "bindings/bindings.h"
#include "kernels/rows/plane_reduce/plane_reduce.h"
#include "kernels/step/step_kernels.h"
#include "plancap/base/error.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

using NamedTensors = std::vector<plancap::NamedTensor>;
using NamedNumbers = std::vector<NamedNumber>;
using NamedWords = std::vector<NamedWord>;

// The launcher of this kernel.
auto launcher_of(const std::string& name) {
  const StepKernel* kernel = find_step_kernel(name);
  SDM_INTERNAL_CHECK(kernel, "no step kernel ", name);
  return [kernel](plancap::Sink& sink, const StepArgs& args) { launch_step(*kernel, sink, args); };
}

void run_step(const std::string& name, const NamedTensors& operands, const NamedNumbers& numbers,
              const NamedWords& words, int64_t ti, uintptr_t stream) {
  StepArgs args{operands, numbers, words};
  args.ti = ti;
  launch_now(launcher_of(name), args, operands.at(0).second.device, stream);
}

std::shared_ptr<plancap::BoundPlan> record_step(const std::string& name,
                                                const NamedTensors& operands,
                                                const NamedNumbers& numbers,
                                                const NamedWords& words, int64_t steps, bool pdl) {
  StepArgs args{operands, numbers, words};
  args.steps = steps;
  args.pdl = pdl;
  return std::const_pointer_cast<plancap::BoundPlan>(
      record(name.c_str(), launcher_of(name), args, operands.at(0).second.device));
}

// By kernel: (operand, access, optional) each, and (number, optional) for each that callers give;
// and the words that they may give.
py::dict step_tables() {
  py::dict tables;
  for (const StepKernel* kernel : step_kernels()) {
    py::list operands, numbers, words;
    for (const StepRow& row : kernel->rows) {
      if (row.operand) {
        operands.append(
            py::make_tuple(row.operand, static_cast<uint8_t>(row.access), row.optional));
      } else if (row.given) {
        numbers.append(py::make_tuple(row.field.name, row.optional));
      } else if (row.word) {
        words.append(row.word);
      }
    }
    tables[kernel->name] = py::make_tuple(operands, numbers, words);
  }
  return tables;
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
  module.def("run_step", &run_step, py::arg("kernel"), py::arg("operands"), py::arg("numbers"),
             py::arg("words"), py::arg("ti"), py::arg("stream"));
  module.def("record_step", &record_step, py::arg("kernel"), py::arg("operands"),
             py::arg("numbers"), py::arg("words"), py::arg("steps"), py::arg("pdl"));
  module.def("step_tables", &step_tables);
  bind_plane_reduce(module);
}

}  // namespace sdm::bindings
