// The layer's kernels around the operation: launch them now, record them as plans.
#include "bindings/bindings.h"
#include "bindings/tensor_reader.h"
#include "kernels/layer/decode_step/decode_step.h"
#include "kernels/layer/merge_readings/merge_readings.h"
#include "kernels/layer/slot_select/slot_select.h"
#include "kernels/layer/slot_select/slot_select_block.h"
#include "kernels/layer/slot_select_grad/slot_select_grad.h"
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

// slot_select: a side's operands by name, its first column, its activation's number and scale.
std::optional<SlotSelectSideArgs> select_side(const Operands* refs, int64_t first,
                                              int32_t activation, float scale) {
  if (refs == nullptr) return {};
  SlotSelectSideArgs side;
  side.scores = refs->at("scores");
  side.first = first;
  side.positions = refs->at("positions");
  side.slots = refs->at("slots");
  side.weights = refs->at("weights");
  if (refs->contains("norms")) side.norms = refs->at("norms");
  side.activation = static_cast<SlotActivation>(activation);
  side.scale = scale;
  return side;
}

SlotSelectArgs select_args(const Operands* key, int64_t key_first, int32_t key_activation,
                           float key_scale, const Operands* query, int64_t query_first,
                           int32_t query_activation, float query_scale,
                           const std::vector<int64_t>& widths, int64_t num_heads, bool pdl) {
  SlotSelectArgs args;
  args.key = select_side(key, key_first, key_activation, key_scale);
  args.query = select_side(query, query_first, query_activation, query_scale);
  args.widths = widths;
  args.num_heads = num_heads;
  args.pdl = pdl;
  return args;
}

// slot_select_grad: likewise.
std::optional<SlotGradSideArgs> grad_side(const Operands* refs, int32_t activation, float scale) {
  if (refs == nullptr) return {};
  SlotGradSideArgs side;
  side.d_weights = refs->at("d_weights");
  side.slots = refs->at("slots");
  if (refs->contains("weights")) side.weights = refs->at("weights");
  if (refs->contains("norms")) side.norms = refs->at("norms");
  side.d_scores = refs->at("d_scores");
  side.activation = static_cast<SlotActivation>(activation);
  side.scale = scale;
  return side;
}

SlotSelectGradArgs grad_args(const Operands* key, int32_t key_activation, float key_scale,
                             const Operands* query, int32_t query_activation, float query_scale,
                             const std::vector<int64_t>& widths, int64_t num_heads) {
  SlotSelectGradArgs args;
  args.key = grad_side(key, key_activation, key_scale);
  args.query = grad_side(query, query_activation, query_scale);
  args.widths = widths;
  args.num_heads = num_heads;
  return args;
}

Device device_of(const Operands* key, const Operands* query, const char* operand) {
  const Operands* given = key ? key : query;
  return given ? given->at(operand).device : Device{};
}

void bind_slot_select(py::module_& module) {
  module.def("slot_select_limits", [] {
    return py::make_tuple(kMaxFactors, kMaxFactorWidth, kMaxSelected, kMaxCandidates);
  });
  module.def(
      "slot_select",
      [](const Operands* key, int64_t key_first, int32_t key_activation, float key_scale,
         const Operands* query, int64_t query_first, int32_t query_activation, float query_scale,
         const std::vector<int64_t>& widths, int64_t num_heads, bool pdl, uintptr_t stream) {
        launch_now(slot_select,
                   select_args(key, key_first, key_activation, key_scale, query, query_first,
                               query_activation, query_scale, widths, num_heads, pdl),
                   device_of(key, query, "scores"), stream);
      });
  module.def(
      "plan_slot_select",
      [](const Operands* key, int64_t key_first, int32_t key_activation, float key_scale,
         const Operands* query, int64_t query_first, int32_t query_activation, float query_scale,
         const std::vector<int64_t>& widths, int64_t num_heads, bool pdl) {
        return std::const_pointer_cast<plancap::BoundPlan>(
            record("slot_select", slot_select,
                   select_args(key, key_first, key_activation, key_scale, query, query_first,
                               query_activation, query_scale, widths, num_heads, pdl),
                   device_of(key, query, "scores")));
      });
}

void bind_slot_select_grad(py::module_& module) {
  module.def("slot_select_grad",
             [](const Operands* key, int32_t key_activation, float key_scale, const Operands* query,
                int32_t query_activation, float query_scale, const std::vector<int64_t>& widths,
                int64_t num_heads, uintptr_t stream) {
               launch_now(slot_select_grad,
                          grad_args(key, key_activation, key_scale, query, query_activation,
                                    query_scale, widths, num_heads),
                          device_of(key, query, "d_scores"), stream);
             });
  module.def("plan_slot_select_grad",
             [](const Operands* key, int32_t key_activation, float key_scale, const Operands* query,
                int32_t query_activation, float query_scale, const std::vector<int64_t>& widths,
                int64_t num_heads) {
               return std::const_pointer_cast<plancap::BoundPlan>(
                   record("slot_select_grad", slot_select_grad,
                          grad_args(key, key_activation, key_scale, query, query_activation,
                                    query_scale, widths, num_heads),
                          device_of(key, query, "d_scores")));
             });
}

// The way from the readings to the output projection.
MergeReadingsArgs merge_readings_args(const Operands& refs, double eps, bool pdl) {
  MergeReadingsArgs args;
  args.readings = refs.at("readings");
  if (refs.contains("norm_weight")) args.norm_weight = refs.at("norm_weight");
  if (refs.contains("norm_bias")) args.norm_bias = refs.at("norm_bias");
  if (refs.contains("gate")) args.gate = refs.at("gate");
  args.merged = refs.at("merged");
  args.eps = eps;
  args.pdl = pdl;
  return args;
}

void bind_merge_readings(py::module_& module) {
  module.def("merge_readings", [](const Operands& refs, double eps, uintptr_t stream) {
    const MergeReadingsArgs args = merge_readings_args(refs, eps, false);
    launch_now(merge_readings, args, args.readings.device, stream);
  });
  module.def("plan_merge_readings", [](const Operands& refs, double eps, bool pdl) {
    const MergeReadingsArgs args = merge_readings_args(refs, eps, pdl);
    return std::const_pointer_cast<plancap::BoundPlan>(
        record("merge_readings", merge_readings, args, args.readings.device));
  });
}

}  // namespace

void bind_layer(py::module_& module) {
  bind_gates(module);
  bind_decode_step(module);
  bind_slot_select(module);
  bind_slot_select_grad(module);
  bind_merge_readings(module);
}

}  // namespace sdm::bindings
