#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/tensor_reader.h"
#include "plancap/base/error.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

using plancap::BoundPlan;
using plancap::Chain;
using plancap::Plan;
using plancap::StepOrder;
using plancap::Windows;

StepOrder order_of(bool ascending) {
  return ascending ? StepOrder::kAscending : StepOrder::kDescending;
}

std::shared_ptr<Chain> make_chain(const std::vector<std::shared_ptr<BoundPlan>>& plans,
                                  uint32_t steps, bool ascending) {
  std::vector<BoundPlanPtr> list(plans.begin(), plans.end());
  return std::make_shared<Chain>(std::move(list), steps, order_of(ascending));
}

void check_together(const std::vector<std::shared_ptr<Plan>>& plans, uint32_t steps) {
  const std::vector<std::shared_ptr<const Plan>> list(plans.begin(), plans.end());
  plancap::check_together(list, steps);
}

py::bytes chain_bytes(const std::vector<std::shared_ptr<Plan>>& plans, uint32_t steps,
                      bool ascending) {
  const std::vector<std::shared_ptr<const Plan>> list(plans.begin(), plans.end());
  return to_python(plancap::encode_chain(list, steps, order_of(ascending)));
}

py::tuple decode_chain(const py::buffer& buffer) {
  const plancap::DecodedChain chain = plancap::decode_chain(from_python(buffer));
  py::list plans;
  for (const auto& plan : chain.plans) plans.append(std::const_pointer_cast<Plan>(plan));
  return py::make_tuple(plans, chain.steps, chain.order == StepOrder::kAscending);
}

void expect_known(const Chain& chain, std::span<const plancap::OperandRef> operands) {
  std::vector<bool> known(operands.size());
  for (const BoundPlanPtr& plan : chain.plans()) {
    const auto mark = [&](std::string_view name) {
      for (size_t i = 0; i < operands.size(); ++i) {
        if (operands[i].name == name) known[i] = true;
      }
    };
    for (const plancap::RelocRecord& reloc : plan->plan().relocs()) mark(reloc.operand);
  }
  const size_t first = std::ranges::find(known, false) - known.begin();
  if (first == known.size()) return;
  throw Error(ErrorKind::kPlan,
              cat("[chain] bind: no plan has an operand '", operands[first].name, "'"));
}

std::vector<plancap::OperandRef> known_operands(const Chain& chain, const Operands& given) {
  std::vector<plancap::OperandRef> operands;
  operands.reserve(given.list().size());
  for (const auto& [name, tensor] : given.list()) operands.push_back({name, &tensor});
  expect_known(chain, operands);
  return operands;
}

// The chain on other tensors, by operand name.
std::shared_ptr<Chain> rebind(const Chain& chain, const Operands& given) {
  return chain.rebind(known_operands(chain, given));
}

// The same of another length.
std::shared_ptr<Chain> resized(const Chain& chain, const Operands& given, uint32_t steps,
                               const std::vector<plancap::LengthNumber>& numbers) {
  return chain.rebind(known_operands(chain, given), steps, numbers);
}

py::list bound_plans(const Chain& chain) {
  py::list plans;
  for (const auto& plan : chain.plans()) plans.append(std::const_pointer_cast<BoundPlan>(plan));
  return plans;
}

void run(const Chain& chain, uintptr_t stream, uintptr_t blas_handle,
         std::optional<bool> windowed) {
  const Windows windows = !windowed   ? Windows::kAuto
                          : *windowed ? Windows::kAlways
                                      : Windows::kNever;
  const py::gil_scoped_release release;
  plancap::run_chain(chain, as_stream(stream), reinterpret_cast<void*>(blas_handle), windows);
}

// A chain that is bound again for each run, to tensors of the same forms.
class HeldChain {
 public:
  // `kept` are where they are in every run, `given` elsewhere in each.
  HeldChain(std::shared_ptr<const Chain> chain, Operands kept, Operands given)
      : chain_(std::move(chain)), kept_(std::move(kept)), given_(std::move(given)) {}

  void run(const std::vector<uintptr_t>& addresses, uintptr_t stream) const {
    const std::vector<TensorRef> placed = given_.at_addresses(addresses);
    std::vector<plancap::OperandRef> operands;
    operands.reserve(placed.size() + kept_.list().size());
    for (size_t i = 0; i < placed.size(); ++i) {
      operands.push_back({given_.list()[i].first, &placed[i]});
    }
    for (const auto& [name, tensor] : kept_.list()) operands.push_back({name, &tensor});
    const py::gil_scoped_release release;
    plancap::run_chain(*chain_->rebind(operands), as_stream(stream), nullptr, Windows::kNever);
  }

 private:
  std::shared_ptr<const Chain> chain_;
  Operands kept_, given_;
};

py::list run_timed(const Chain& chain) {
  std::vector<plancap::LaunchTime> times;
  {
    const py::gil_scoped_release release;
    times = chain.run_host_timed();
  }
  py::list list;
  for (const auto& time : times) {
    list.append(py::make_tuple(time.plan, time.start_ns, time.end_ns));
  }
  return list;
}

}  // namespace

void bind_chains(py::module_& module) {
  py::class_<Chain, std::shared_ptr<Chain>>(module, "Chain")
      .def(py::init(&make_chain), py::arg("plans"), py::arg("steps"), py::arg("ascending") = false)
      .def("run", &run, py::arg("stream"), py::arg("blas_handle") = 0,
           py::arg("windowed") = py::none())
      .def("early_starts", &Chain::early_starts)
      .def("has_library_step", &Chain::has_library_step)
      .def("rebind", &rebind, py::arg("operands"))
      .def("resized", &resized, py::arg("operands"), py::arg("steps"), py::arg("numbers"))
      .def("bound_plans", &bound_plans)
      .def("ascending", [](const Chain& chain) { return chain.order() == StepOrder::kAscending; })
      .def("on_host", [](const Chain& chain) { return chain.backend() == plancap::Backend::kHost; })
      .def("run_timed", &run_timed)
      .def("run_step", &Chain::run_host_step, py::call_guard<py::gil_scoped_release>())
      .def("launches", &Chain::launches)
      .def("steps", &Chain::steps)
      .def("device", &Chain::device);
  py::class_<HeldChain>(module, "HeldChain")
      .def(py::init([](std::shared_ptr<Chain> chain, const Operands& kept, const Operands& given) {
             return HeldChain(std::move(chain), kept, given);
           }),
           py::arg("chain"), py::arg("kept"), py::arg("given"))
      .def("run", &HeldChain::run);
  module.def("check_together", &check_together);
  module.def("encode_chain", &chain_bytes, py::arg("plans"), py::arg("steps"),
             py::arg("ascending") = false);
  module.def("decode_chain", &decode_chain);
}

}  // namespace sdm::bindings
