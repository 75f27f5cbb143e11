// The kernels that work on all chunks of a call at once, before and after the step chain.
#include "bindings/bindings.h"
#include "bindings/tensor_reader.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients.h"
#include "kernels/chunk/chunk_inverse/chunk_inverse.h"
#include "kernels/chunk/chunk_prepare/chunk_prepare.h"
#include "kernels/chunk/chunk_readings/chunk_readings.h"
#include "kernels/chunk/event_order/event_order.h"
#include "kernels/chunk/event_order/outside_slots.h"
#include "kernels/chunk/pair_matrices/pair_matrices.h"
#include "kernels/chunk/token_gradients/token_gradients.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

void run_event_order(const Operands& refs, int64_t num_slots, int64_t bank_rows, int64_t chunk_size,
                     int64_t first_step, uintptr_t stream) {
  EventOrderArgs args;
  args.k_idx = refs.at("k_idx");
  args.q_idx = refs.at("q_idx");
  args.sorted_slots = refs.at("sorted_slots");
  args.order = refs.at("order");
  if (refs.contains("outside")) args.outside = refs.at("outside");
  args.num_slots = num_slots;
  args.bank_rows = bank_rows;
  args.chunk_size = chunk_size;
  args.first_step = first_step;
  launch_now(event_order, args, args.k_idx.device, stream);
}

// The argument's name, the sequence and the value of the first slot outside; k_idx comes first.
std::optional<std::tuple<const char*, int64_t, int64_t>> outside_slot(const Operands& refs,
                                                                      int64_t num_slots,
                                                                      int64_t bank_rows) {
  const py::gil_scoped_release release;
  for (const char* name : {"k_idx", "q_idx"}) {
    const TensorRef& indices = refs.at(name);
    expect_device("outside_slot", name, indices, Device{});
    SDM_EXPECT(indices.ndim == 3, kValue, "outside_slot", name, "[P, T, .]", indices.describe());
    const bool legal = indices.dtype == Dtype::kInt32 || indices.dtype == Dtype::kInt64;
    SDM_EXPECT(legal, kType, "outside_slot", name, "int32 or int64", indices.describe());
    const auto found = find_outside_slot(indices, num_slots, bank_rows);
    if (found) return std::tuple{name, found->sequence, found->value};
  }
  return {};
}

ChainRecordRefs chain_refs(const Operands& refs) {
  ChainRecordRefs chain{refs.at("pd"),  refs.at("slots"), std::nullopt,
                        refs.at("rec"), refs.at("bpre"),  refs.at("qrec")};
  if (refs.contains("cpe")) chain.cpe = refs.at("cpe");
  return chain;
}

void run_chunk_prepare(const Operands& refs, const Operands* chain, const Operands* steps,
                       int64_t chunk_size, int64_t first_step, bool bf16_weights,
                       uintptr_t stream) {
  ChunkPrepareArgs args;
  args.k_val = refs.at("k_val");
  args.q_val = refs.at("q_val");
  args.beta = refs.at("beta");
  args.g = refs.at("g");
  args.sorted_slots = refs.at("sorted_slots");
  args.order = refs.at("order");
  args.events = refs.at("events");
  args.places = refs.at("places");
  args.beta_rows = refs.at("beta_rows");
  if (chain) args.chain = chain_refs(*chain);
  if (steps) args.steps = StepRecordRefs{steps->at("row_weights"), steps->at("updates")};
  args.chunk_size = chunk_size;
  args.first_step = first_step;
  args.bf16_weights = bf16_weights;
  launch_now(chunk_prepare, args, args.k_val.device, stream);
}

void run_pair_matrices(const Operands& refs, int64_t num_writes, uintptr_t stream) {
  PairMatricesArgs args;
  args.events = refs.at("events");
  args.places = refs.at("places");
  args.beta_rows = refs.at("beta_rows");
  if (refs.contains("a")) args.a = refs.at("a");
  args.system = refs.at("system");
  args.qk = refs.at("qk");
  args.num_writes = num_writes;
  launch_now(pair_matrices, args, args.events.device, stream);
}

void run_chunk_inverse(const Operands& refs, uintptr_t stream) {
  ChunkInverseArgs args;
  args.system = refs.at("system");
  args.qk = refs.at("qk");
  args.beta = refs.at("beta");
  if (refs.contains("x")) args.x = refs.at("x");
  if (refs.contains("qx")) args.qx = refs.at("qx");
  args.scaled = refs.at("scaled");
  launch_now(chunk_inverse, args, args.system.device, stream);
}

void run_chunk_gradients(const Operands& refs, int64_t chunk_size, int64_t first_step,
                         uintptr_t stream) {
  ChunkGradientsArgs args;
  args.events = refs.at("events");
  args.beta = refs.at("beta");
  args.d_m = refs.at("d_m");
  args.d_qk = refs.at("d_qk");
  args.dpd = refs.at("dpd");
  args.dkeff = refs.at("dkeff");
  args.d_total = refs.at("d_total");
  args.dqeff = refs.at("dqeff");
  args.terms = refs.at("terms");
  if (refs.contains("gates")) args.gates = refs.at("gates");
  args.dk = refs.at("dk");
  args.dq = refs.at("dq");
  args.dg = refs.at("dg");
  args.chunk_size = chunk_size;
  args.first_step = first_step;
  launch_now(chunk_gradients, args, args.events.device, stream);
}

void run_token_gradients(const Operands& refs, int64_t first_step, uintptr_t stream) {
  TokenGradientsArgs args;
  args.d_u = refs.at("d_u");
  args.innovation = refs.at("innovation");
  args.beta = refs.at("beta");
  args.dv = refs.at("dv");
  args.dbeta = refs.at("dbeta");
  args.first_step = first_step;
  launch_now(token_gradients, args, args.d_u.device, stream);
}

void run_chunk_readings(const Operands& refs, int64_t first_step, uintptr_t stream) {
  ChunkReadingsArgs args;
  args.reading = refs.at("reading");
  args.qk = refs.at("qk");
  args.delta = refs.at("delta");
  args.readings = refs.at("readings");
  args.first_step = first_step;
  launch_now(chunk_readings, args, args.reading.device, stream);
}

}  // namespace

void bind_chunks(py::module_& module) {
  module.def("event_order", &run_event_order);
  module.def("outside_slot", &outside_slot);
  module.def("chunk_prepare", &run_chunk_prepare);
  module.def("pair_matrices", &run_pair_matrices);
  module.def("chunk_inverse", &run_chunk_inverse);
  module.def("token_gradients", &run_token_gradients);
  module.def("chunk_readings", &run_chunk_readings);
  module.def("chunk_gradients", &run_chunk_gradients);
}

}  // namespace sdm::bindings
