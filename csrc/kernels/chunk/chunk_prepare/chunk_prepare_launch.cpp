#include "kernels/chunk/chunk_prepare/chunk_prepare.h"
#include "kernels/chunk/chunk_prepare/chunk_prepare_geometry.h"
#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/step_launch.h"

namespace sdm {
namespace {

using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "chunk_prepare";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(ChunkPrepareParams, k_val),        SDM_FIELD(ChunkPrepareParams, q_val),
    SDM_FIELD(ChunkPrepareParams, beta),         SDM_FIELD(ChunkPrepareParams, g),
    SDM_FIELD(ChunkPrepareParams, sorted_slots), SDM_FIELD(ChunkPrepareParams, order),
    SDM_FIELD(ChunkPrepareParams, events),       SDM_FIELD(ChunkPrepareParams, places),
    SDM_FIELD(ChunkPrepareParams, beta_rows),    SDM_FIELD(ChunkPrepareParams, pd),
    SDM_FIELD(ChunkPrepareParams, slots),        SDM_FIELD(ChunkPrepareParams, cpe),
    SDM_FIELD(ChunkPrepareParams, records),      SDM_FIELD(ChunkPrepareParams, bpre),
    SDM_FIELD(ChunkPrepareParams, read_records), SDM_FIELD(ChunkPrepareParams, row_weights),
    SDM_FIELD(ChunkPrepareParams, updates),      SDM_FIELD(ChunkPrepareParams, num_tokens),
    SDM_FIELD(ChunkPrepareParams, first_step),   SDM_FIELD(ChunkPrepareParams, num_chunks),
    SDM_FIELD(ChunkPrepareParams, num_parallel), SDM_FIELD(ChunkPrepareParams, chunk_size),
    SDM_FIELD(ChunkPrepareParams, num_writes),   SDM_FIELD(ChunkPrepareParams, num_reads),
    SDM_FIELD(ChunkPrepareParams, num_gates),    SDM_FIELD(ChunkPrepareParams, k_val_type),
    SDM_FIELD(ChunkPrepareParams, q_val_type),   SDM_FIELD(ChunkPrepareParams, beta_type),
    SDM_FIELD(ChunkPrepareParams, g_type),       SDM_FIELD(ChunkPrepareParams, bf16_weights),
};

void run_host(const void* params) {
  chunk_prepare_host(*static_cast<const ChunkPrepareParams*>(params));
}

// P, T, W and R from the weights' shapes.
ChunkShape check_shape(const ChunkPrepareArgs& args) {
  expect_values(kName, "k_val", args.k_val, {"P", "T", "W"});
  const int64_t p = args.k_val.shape[0], t = args.k_val.shape[1];
  expect_values(kName, "q_val", args.q_val, {p, t, "R"});
  return {t,
          static_cast<int32_t>(args.first_step),
          static_cast<int32_t>(p),
          static_cast<int32_t>(args.chunk_size),
          static_cast<int32_t>(args.k_val.shape[2]),
          static_cast<int32_t>(args.q_val.shape[2])};
}

void fill_inputs(ChunkPrepareParams& params, const ChunkPrepareArgs& args,
                 const ChunkShape& shape) {
  const int64_t p = shape.num_parallel, t = shape.num_tokens;
  const int64_t w = shape.num_writes, r = shape.num_reads;
  const int64_t gates = args.g.ndim == 3 && args.g.shape[2] == 1 ? 1 : w;
  params.k_val = args.k_val.data;
  params.q_val = args.q_val.data;
  params.beta = args.beta.data;
  params.g = args.g.data;
  params.k_val_type = expect_values(kName, "k_val", args.k_val, {p, t, w});
  params.q_val_type = expect_values(kName, "q_val", args.q_val, {p, t, r});
  params.beta_type = expect_values(kName, "beta", args.beta, {p, t, 1});
  params.g_type = expect_values(kName, "g", args.g, {p, t, gates});
  params.num_gates = static_cast<int32_t>(gates);
  params.bf16_weights = args.bf16_weights ? 1 : 0;
}

void fill_chain(ChunkPrepareParams& params, const ChainRecordRefs& chain, int64_t chunks,
                const ChunkShape& shape) {
  const int64_t rows = chunks * shape.chunk_size, w = shape.num_writes, n = shape.writes();
  expect_tensor(kName, "pd", chain.pd, Dtype::kFloat32, {rows, w});
  expect_tensor(kName, "slots", chain.slots, Dtype::kInt32, {rows, w});
  if (chain.cpe) expect_numel(kName, "cpe", *chain.cpe, Dtype::kFloat32, rows * w);
  expect_records(kName, "rec", chain.rec, n);
  expect_numel(kName, "rec", chain.rec, Dtype::kInt32, 4 * chunks * n);
  expect_tensor(kName, "bpre", chain.bpre, Dtype::kInt32, {chunks, (n + 31) / 32 + 1});
  expect_records(kName, "qrec", chain.qrec, shape.reads());
  expect_numel(kName, "qrec", chain.qrec, Dtype::kInt32, 4 * chunks * shape.reads());
  params.pd = static_cast<float*>(chain.pd.data);
  params.slots = static_cast<int32_t*>(chain.slots.data);
  params.cpe = chain.cpe ? static_cast<float*>(chain.cpe->data) : nullptr;
  params.records = static_cast<Record*>(chain.rec.data);
  params.bpre = static_cast<int32_t*>(chain.bpre.data);
  params.read_records = static_cast<Record*>(chain.qrec.data);
}

void fill_steps(ChunkPrepareParams& params, const StepRecordRefs& steps, int64_t chunks,
                const ChunkShape& shape) {
  const int64_t rows = chunks * shape.chunk_size;
  expect_row_weights(kName, "row_weights", steps.row_weights);
  expect_numel(kName, "row_weights", steps.row_weights, Dtype::kInt32,
               2 * rows * shape.per_token());
  expect_records(kName, "updates", steps.updates, shape.writes());
  expect_numel(kName, "updates", steps.updates, Dtype::kInt32, 4 * chunks * shape.writes());
  params.row_weights = static_cast<RowWeight*>(steps.row_weights.data);
  params.updates = static_cast<Record*>(steps.updates.data);
}

void check_devices(const plancap::Target& target, const ChunkPrepareArgs& args) {
  const auto expect = [&](const char* name, const TensorRef& tensor) {
    expect_device(kName, name, tensor, target.device);
  };
  expect("k_val", args.k_val), expect("q_val", args.q_val);
  expect("beta", args.beta), expect("g", args.g);
  expect("sorted_slots", args.sorted_slots), expect("order", args.order);
  expect("events", args.events), expect("places", args.places);
  expect("beta_rows", args.beta_rows);
  if (args.steps) {
    expect("row_weights", args.steps->row_weights), expect("updates", args.steps->updates);
  }
  if (!args.chain) return;
  const ChainRecordRefs& chain = *args.chain;
  expect("pd", chain.pd), expect("slots", chain.slots);
  if (chain.cpe) expect("cpe", *chain.cpe);
  expect("rec", chain.rec), expect("bpre", chain.bpre), expect("qrec", chain.qrec);
}

}  // namespace

const KernelInfo& chunk_prepare_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<ChunkPrepareParams>(kName, kFields, run_host);
  return info;
}

void chunk_prepare(plancap::Sink& sink, const ChunkPrepareArgs& args) {
  // Check and fill.
  const ChunkShape shape = check_shape(args);
  const int64_t chunks = args.order.ndim == 2 ? args.order.shape[0] : 0;
  expect_chunks(kName, shape, chunks);
  ChunkPrepareParams params{};
  fill_inputs(params, args, shape);
  expect_tensor(kName, "sorted_slots", args.sorted_slots, Dtype::kInt32, {chunks, shape.events()});
  expect_tensor(kName, "order", args.order, Dtype::kInt32, {chunks, shape.events()});
  expect_tensor(kName, "places", args.places, Dtype::kInt32, {chunks, shape.events()});
  expect_event_pairs(kName, "events", args.events, chunks, shape.events());
  expect_numel(kName, "beta_rows", args.beta_rows, Dtype::kFloat32, chunks * shape.chunk_size);
  if (args.chain) fill_chain(params, *args.chain, chunks, shape);
  if (args.steps) fill_steps(params, *args.steps, chunks, shape);
  check_devices(sink.target(), args);
  params.sorted_slots = static_cast<const int32_t*>(args.sorted_slots.data);
  params.order = static_cast<const int32_t*>(args.order.data);
  params.events = static_cast<ChunkEvent*>(args.events.data);
  params.places = static_cast<int32_t*>(args.places.data);
  params.beta_rows = static_cast<float*>(args.beta_rows.data);
  put_shape(params, shape, chunks);

  // Choose.
  plancap::Launch launch;
  launch.kernel = &chunk_prepare_info();
  launch.params = &params;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, chunk_prepare_geometry(params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
