#include "kernels/common/chunk_launch.h"
#include "kernels/common/step_launch.h"
#include "kernels/step_lists/step_lists.h"
#include "kernels/step_lists/step_lists_geometry.h"

namespace sdm {
namespace {

using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "step_lists";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(StepListsParams, events),         SDM_FIELD(StepListsParams, k_idx),
    SDM_FIELD(StepListsParams, q_idx),          SDM_FIELD(StepListsParams, gather),
    SDM_FIELD(StepListsParams, bags),           SDM_FIELD(StepListsParams, bag_weights),
    SDM_FIELD(StepListsParams, update_bags),    SDM_FIELD(StepListsParams, update_weights),
    SDM_FIELD(StepListsParams, update_offsets), SDM_FIELD(StepListsParams, update_sources),
    SDM_FIELD(StepListsParams, used),           SDM_FIELD(StepListsParams, num_tokens),
    SDM_FIELD(StepListsParams, v_row),          SDM_FIELD(StepListsParams, group_row),
    SDM_FIELD(StepListsParams, group_stride),   SDM_FIELD(StepListsParams, read_row),
    SDM_FIELD(StepListsParams, zero_row),       SDM_FIELD(StepListsParams, first_step),
    SDM_FIELD(StepListsParams, num_chunks),     SDM_FIELD(StepListsParams, num_parallel),
    SDM_FIELD(StepListsParams, chunk_size),     SDM_FIELD(StepListsParams, num_writes),
    SDM_FIELD(StepListsParams, num_reads),      SDM_FIELD(StepListsParams, wide_k_idx),
    SDM_FIELD(StepListsParams, wide_q_idx),     SDM_FIELD(StepListsParams, fetched),
    SDM_FIELD(StepListsParams, reserved),
};

void run_host(const void* params) { step_lists_host(*static_cast<const StepListsParams*>(params)); }

// P, T, W and R from the indices' shapes; fills what follows from them.
ChunkShape check_inputs(StepListsParams& params, const StepListsArgs& args) {
  expect_indices(kName, "k_idx", args.k_idx, {"P", "T", "W"});
  const int64_t p = args.k_idx.shape[0], t = args.k_idx.shape[1];
  params.wide_k_idx = expect_indices(kName, "k_idx", args.k_idx, {p, t, args.k_idx.shape[2]});
  params.wide_q_idx = expect_indices(kName, "q_idx", args.q_idx, {p, t, "R"});
  const ChunkShape shape{t,
                         static_cast<int32_t>(args.first_step),
                         static_cast<int32_t>(p),
                         static_cast<int32_t>(args.chunk_size),
                         static_cast<int32_t>(args.k_idx.shape[2]),
                         static_cast<int32_t>(args.q_idx.shape[2])};
  const int64_t chunks = args.events.ndim == 3 ? args.events.shape[0] : 0;
  expect_chunks(kName, shape, chunks);
  expect_event_pairs(kName, "events", args.events, chunks, shape.events());
  params.num_tokens = t;
  params.first_step = shape.first_step;
  params.num_chunks = static_cast<int32_t>(chunks);
  params.num_parallel = shape.num_parallel;
  params.chunk_size = shape.chunk_size;
  params.num_writes = shape.num_writes;
  params.num_reads = shape.num_reads;
  return shape;
}

void check_lists(StepListsParams& params, const StepListsArgs& args, const ChunkShape& shape) {
  const int64_t p = shape.num_parallel, steps = params.num_chunks / p;
  const int64_t n = p * shape.writes(), m = p * shape.reads();
  const int64_t bags = p * shape.chunk_size + n + m;
  params.fetched = args.gather.ndim == 2 && args.gather.shape[1] != n ? 1 : 0;
  const int64_t gathered = params.fetched != 0 ? n + m : n;
  expect_tensor(kName, "gather", args.gather, Dtype::kInt64, {steps, gathered});
  expect_tensor(kName, "bags", args.bags, Dtype::kInt64, {steps, bags});
  expect_tensor(kName, "bag_weights", args.bag_weights, Dtype::kFloat32, {steps, bags});
  expect_tensor(kName, "update_bags", args.update_bags, Dtype::kInt64, {steps, 2 * n});
  expect_tensor(kName, "update_weights", args.update_weights, Dtype::kFloat32, {steps, 2 * n});
  expect_tensor(kName, "update_offsets", args.update_offsets, Dtype::kInt64, {steps, n});
  expect_tensor(kName, "update_sources", args.update_sources, Dtype::kInt64, {steps, n});
  expect_tensor(kName, "used", args.used, Dtype::kInt32, {params.num_chunks});
}

void check_devices(const plancap::Target& target, const StepListsArgs& args) {
  const auto expect = [&](const char* name, const TensorRef& tensor) {
    expect_device(kName, name, tensor, target.device);
  };
  expect("events", args.events), expect("k_idx", args.k_idx), expect("q_idx", args.q_idx);
  expect("gather", args.gather), expect("bags", args.bags);
  expect("bag_weights", args.bag_weights), expect("update_bags", args.update_bags);
  expect("update_weights", args.update_weights), expect("update_offsets", args.update_offsets);
  expect("update_sources", args.update_sources), expect("used", args.used);
}

void fill(StepListsParams& params, const StepListsArgs& args) {
  params.events = static_cast<const ChunkEvent*>(args.events.data);
  params.k_idx = args.k_idx.data;
  params.q_idx = args.q_idx.data;
  params.gather = static_cast<int64_t*>(args.gather.data);
  params.bags = static_cast<int64_t*>(args.bags.data);
  params.bag_weights = static_cast<float*>(args.bag_weights.data);
  params.update_bags = static_cast<int64_t*>(args.update_bags.data);
  params.update_weights = static_cast<float*>(args.update_weights.data);
  params.update_offsets = static_cast<int64_t*>(args.update_offsets.data);
  params.update_sources = static_cast<int64_t*>(args.update_sources.data);
  params.used = static_cast<int32_t*>(args.used.data);
  params.v_row = args.v_row;
  params.group_row = args.group_row;
  params.group_stride = args.group_stride;
  params.read_row = args.read_row;
  params.zero_row = args.zero_row;
}

}  // namespace

const KernelInfo& step_lists_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<StepListsParams>(kName, kFields, run_host);
  return info;
}

void step_lists(plancap::Sink& sink, const StepListsArgs& args) {
  // Check and fill.
  StepListsParams params{};
  const ChunkShape shape = check_inputs(params, args);
  check_lists(params, args, shape);
  check_devices(sink.target(), args);
  fill(params, args);

  // Choose.
  plancap::Launch launch;
  launch.kernel = &step_lists_info();
  launch.params = &params;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, step_lists_geometry(params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
