// The layer's kernels around the operation: launch them now, record them as plans.
#include "bindings/bindings.h"
#include "bindings/tensor_reader.h"
#include "kernels/layer/decode_step/decode_step.h"
#include "kernels/layer/token_gates/token_gates.h"
#include "kernels/layer/token_gates_grad/token_gates_grad.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

// The gates.
TokenGatesArgs token_gates_args(const Operands& refs, bool pdl) {
  TokenGatesArgs args;
  args.a = refs.at("gate_a");
  args.b = refs.at("gate_b");
  args.a_log = refs.at("A_log");
  args.dt_bias = refs.at("dt_bias");
  args.beta = refs.at("beta");
  args.g = refs.at("g");
  args.pdl = pdl;
  return args;
}

TokenGatesGradArgs token_gates_grad_args(const Operands& refs) {
  TokenGatesGradArgs args;
  args.d_beta = refs.at("d_beta");
  args.d_g = refs.at("d_g");
  args.a = refs.at("gate_a");
  args.b = refs.at("gate_b");
  args.a_log = refs.at("A_log");
  args.dt_bias = refs.at("dt_bias");
  args.d_a = refs.at("d_gate_a");
  args.d_b = refs.at("d_gate_b");
  args.d_a_log = refs.at("d_A_log");
  args.d_dt_bias = refs.at("d_dt_bias");
  return args;
}

void bind_gates(py::module_& module) {
  module.def("token_gates", [](const Operands& refs, uintptr_t stream) {
    const TokenGatesArgs args = token_gates_args(refs, false);
    launch_now(token_gates, args, args.a.device, stream);
  });
  module.def("plan_token_gates", [](const Operands& refs, bool pdl) {
    const TokenGatesArgs args = token_gates_args(refs, pdl);
    return std::const_pointer_cast<plancap::BoundPlan>(
        record("token_gates", token_gates, args, args.a.device));
  });
  module.def("token_gates_grad", [](const Operands& refs, uintptr_t stream) {
    const TokenGatesGradArgs args = token_gates_grad_args(refs);
    launch_now(token_gates_grad, args, args.a.device, stream);
  });
  module.def("plan_token_gates_grad", [](const Operands& refs) {
    const TokenGatesGradArgs args = token_gates_grad_args(refs);
    return std::const_pointer_cast<plancap::BoundPlan>(
        record("token_gates_grad", token_gates_grad, args, args.a.device));
  });
}

// The decoding step.
DecodeStepArgs decode_step_args(const Operands& refs, int64_t slots, bool key_weighted, bool pdl) {
  DecodeStepArgs args;
  args.bank = refs.at("bank");
  args.k_idx = refs.at("k_idx");
  args.k_val = refs.at("k_val");
  args.v = refs.at("v");
  args.beta = refs.at("beta");
  args.g = refs.at("g");
  args.q_idx = refs.at("q_idx");
  args.q_val = refs.at("q_val");
  args.readings = refs.at("readings");
  args.slots = slots;
  args.key_weighted = key_weighted;
  args.pdl = pdl;
  return args;
}

void bind_decode_step(py::module_& module) {
  module.def("decode_step",
             [](const Operands& refs, int64_t slots, bool key_weighted, uintptr_t stream) {
               const DecodeStepArgs args = decode_step_args(refs, slots, key_weighted, false);
               launch_now(decode_step, args, args.bank.device, stream);
             });
  module.def("plan_decode_step",
             [](const Operands& refs, int64_t slots, bool key_weighted, bool pdl) {
               const DecodeStepArgs args = decode_step_args(refs, slots, key_weighted, pdl);
               return std::const_pointer_cast<plancap::BoundPlan>(
                   record("decode_step", decode_step, args, args.bank.device));
             });
}

}  // namespace

void bind_layer(py::module_& module) {
  bind_gates(module);
  bind_decode_step(module);
}

}  // namespace sdm::bindings
