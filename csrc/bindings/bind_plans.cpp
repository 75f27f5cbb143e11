#include "bindings/bindings.h"
#include "plancap/base/error.h"
#include "plancap/format/registry.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

using plancap::BoundPlan;
using plancap::Plan;
using PlanPtr = std::shared_ptr<const Plan>;

py::tuple dim_tuple(plancap::Dim3 dim) { return py::make_tuple(dim.x, dim.y, dim.z); }

// (name, type, offset, size) of every field.
py::list plan_fields(const Plan& plan) {
  py::list list;
  for (const auto& field : plan.fields()) {
    list.append(
        py::make_tuple(plancap::fixed_name(field.name), int{field.type}, field.offset, field.size));
  }
  return list;
}

// (field index, kind, base, stride, lowest, highest) of every patch.
py::list plan_patches(const Plan& plan) {
  py::list list;
  for (const auto& patch : plan.patches()) {
    list.append(py::make_tuple(patch.field, int{patch.kind}, patch.base, patch.stride, patch.lowest,
                               patch.highest));
  }
  return list;
}

// (operand, field index, dtype, access, alignment, offset, extent, step_stride, step_bytes).
py::list plan_relocs(const Plan& plan) {
  py::list list;
  for (const auto& reloc : plan.relocs()) {
    list.append(py::make_tuple(plancap::fixed_name(reloc.operand), reloc.field, int{reloc.dtype},
                               int{reloc.access}, 1 << reloc.align_log2, reloc.offset, reloc.extent,
                               reloc.step_stride, reloc.step_bytes));
  }
  return list;
}

py::dict plan_header(const Plan& plan) {
  const plancap::LaunchConfig config = plan.config();
  py::dict header;
  header["kernel"] = plan.kernel_name();
  header["entry"] = plan.entry();
  header["backend"] = plan.backend() == plancap::Backend::kHost ? "host" : "cuda";
  header["steps"] = plan.header().steps;
  header["grid"] = dim_tuple(config.grid);
  header["block"] = dim_tuple(config.block);
  header["cluster"] = dim_tuple(config.cluster);
  header["shared_bytes"] = config.shared_bytes;
  header["programmatic"] = config.programmatic;
  header["library"] = plan.library();
  return header;
}

}  // namespace

void bind_plans(py::module_& module) {
  py::class_<Plan, std::shared_ptr<Plan>>(module, "Plan")
      .def_static("decode",
                  [](const py::buffer& buffer) {
                    return std::const_pointer_cast<Plan>(Plan::decode(from_python(buffer)));
                  })
      .def("bytes", [](const Plan& plan) { return to_python(plan.bytes()); })
      .def("params", [](const Plan& plan) { return to_python(plan.params()); })
      .def("header", &plan_header)
      .def("library", &Plan::library)
      .def("fields", &plan_fields)
      .def("patches", &plan_patches)
      .def("relocs", &plan_relocs)
      .def("bind",
           [](std::shared_ptr<Plan> plan, const std::vector<plancap::NamedTensor>& operands) {
             return std::const_pointer_cast<BoundPlan>(BoundPlan::bind(std::move(plan), operands));
           });
  py::class_<BoundPlan, std::shared_ptr<BoundPlan>>(module, "BoundPlan")
      .def(
          "plan",
          [](const BoundPlan& bound) { return std::const_pointer_cast<Plan>(bound.shared_plan()); })
      .def("device", &BoundPlan::device);
  module.def("early_fields", [](const std::string& kernel) {
    const plancap::KernelInfo* info = plancap::find_kernel(kernel);
    SDM_EXPECT(info, kValue, "early_fields", "kernel", "a kernel's name", kernel);
    return std::vector<std::string>(info->early.begin(), info->early.end());
  });
  module.def("kernel_names", [] {
    std::vector<std::string> names;
    for (const plancap::KernelInfo* info : plancap::all_kernels()) names.push_back(info->name);
    return names;
  });
}

}  // namespace sdm::bindings
