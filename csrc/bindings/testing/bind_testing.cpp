// _core.testing: kernels, launchers and an executor that only the tests use, and hooks for them.
// Nothing in the package calls it, and a build without SDM_TESTING does not have it.
#include "bindings/bindings.h"
#include "bindings/testing/bind_hooks.h"
#include "testing/faulty_launchers.h"
#include "testing/odd_layout.h"
#include "testing/register_testing.h"
#include "testing/shared_run.h"
#include "testing/walk.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

using testing::Line;
using testing::SharedRun;
using MutablePlan = std::shared_ptr<plancap::BoundPlan>;

MutablePlan to_mutable(const BoundPlanPtr& plan) {
  return std::const_pointer_cast<plancap::BoundPlan>(plan);
}

testing::OddLayoutArgs odd_args(const TensorRef& out, int16_t small,
                                const std::array<int32_t, 3>& triple, uint8_t byte, float scale,
                                int16_t tail, int64_t wide, uint16_t last, int64_t steps) {
  testing::OddLayoutArgs args{};
  args.out = out;
  args.values.small = small;
  args.values.triple = {triple[0], triple[1], triple[2]};
  args.values.byte = byte;
  args.values.scale = scale;
  args.values.tail = tail;
  args.values.wide = wide;
  args.values.last = last;
  args.steps = steps;
  return args;
}

MutablePlan plan_walk(const TensorRef& out, const std::array<int64_t, 4>& bytes,
                      const std::array<int64_t, 4>& value, const std::array<int64_t, 4>& first,
                      int64_t count, int64_t steps, bool add, bool empty) {
  const auto line = [](const std::array<int64_t, 4>& from) {
    return Line{from[0], from[1], from[2], from[3]};
  };
  const testing::WalkArgs args{out,   line(bytes), line(value), line(first),
                               count, steps,       add,         empty};
  return to_mutable(record("walk", testing::walk, args, out.device));
}

void bind_faulty(py::module_& module, const char* name,
                 void (*launcher)(plancap::Sink&, const TensorRef&)) {
  module.def(("plan_" + std::string(name)).c_str(), [=](const TensorRef& out) {
    return to_mutable(record(name, launcher, out, out.device));
  });
}

}  // namespace

void bind_testing(py::module_& parent) {
  py::module_ module = parent.def_submodule("testing", "Only for the project's tests.");
  module.def("register_kernels", &testing::register_testing_kernels);
  module.def("plan_odd_layout", [](const TensorRef& out, int16_t small,
                                   const std::array<int32_t, 3>& triple, uint8_t byte, float scale,
                                   int16_t tail, int64_t wide, uint16_t last, int64_t steps) {
    const auto args = odd_args(out, small, triple, byte, scale, tail, wide, last, steps);
    return to_mutable(record("odd_layout", testing::odd_layout, args, out.device));
  });
  module.def("plan_walk", &plan_walk);
  bind_hooks(module);
  bind_hopper_plans(module);
  bind_faulty(module, "launches_twice", testing::launches_twice);
  bind_faulty(module, "launches_nothing", testing::launches_nothing);
  bind_faulty(module, "throws_before_launch", testing::throws_before_launch);
  bind_faulty(module, "names_unknown_field", testing::names_unknown_field);
  bind_faulty(module, "asks_odd_alignment", testing::asks_odd_alignment);
  bind_faulty(module, "starts_past_operand", testing::starts_past_operand);
  py::class_<SharedRun>(module, "SharedRun")
      .def(py::init([](std::shared_ptr<plancap::Chain> chain) { return SharedRun(chain); }))
      .def("run", [](SharedRun& run) {
        const py::gil_scoped_release release;
        run.run();
      });
}

}  // namespace sdm::bindings
