#include "kernels/chunk/pair_matrices/pair_matrices.h"
#include "kernels/chunk/pair_matrices/pair_matrices_geometry.h"
#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/step_launch.h"

namespace sdm {
namespace {

using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "pair_matrices";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(PairMatricesParams, events),     SDM_FIELD(PairMatricesParams, places),
    SDM_FIELD(PairMatricesParams, beta_rows),  SDM_FIELD(PairMatricesParams, a),
    SDM_FIELD(PairMatricesParams, system),     SDM_FIELD(PairMatricesParams, qk),
    SDM_FIELD(PairMatricesParams, num_chunks), SDM_FIELD(PairMatricesParams, chunk_size),
    SDM_FIELD(PairMatricesParams, num_writes), SDM_FIELD(PairMatricesParams, num_reads),
};

void run_host(const void* params) {
  pair_matrices_host(*static_cast<const PairMatricesParams*>(params));
}

PairMatricesParams check_and_fill(const plancap::Target& target, const PairMatricesArgs& args) {
  expect_tensor(kName, "qk", args.qk, Dtype::kFloat32, {"N", "C", "C"});
  const int64_t n = args.qk.shape[0], c = args.qk.shape[1];
  expect_tensor(kName, "qk", args.qk, Dtype::kFloat32, {n, c, c});
  expect_tensor(kName, "system", args.system, Dtype::kFloat32, {n, c, c});
  if (args.a) expect_tensor(kName, "a", *args.a, Dtype::kFloat32, {n, c, c});
  expect_numel(kName, "beta_rows", args.beta_rows, Dtype::kFloat32, n * c);
  expect_chunk_size(kName, c);
  expect_num_parallel(kName, n, 1);
  expect_entries(kName, "num_writes", args.num_writes);
  expect_tensor(kName, "places", args.places, Dtype::kInt32, {n, "C*(W+R)"});
  const int64_t events = args.places.shape[1], reads = events / c - args.num_writes;
  SDM_EXPECT(events % c == 0 && reads >= 1 && reads <= 256, kValue, kName, "places",
             cat("[N, C*(W+R)] with C = ", c, ", W = ", args.num_writes, " and R in 1..256"),
             args.places.describe());
  expect_event_pairs(kName, "events", args.events, n, events);
  expect_device(kName, "events", args.events, target.device);
  expect_device(kName, "places", args.places, target.device);
  expect_device(kName, "beta_rows", args.beta_rows, target.device);
  if (args.a) expect_device(kName, "a", *args.a, target.device);
  expect_device(kName, "system", args.system, target.device);
  expect_device(kName, "qk", args.qk, target.device);

  PairMatricesParams params{};
  params.events = static_cast<const ChunkEvent*>(args.events.data);
  params.places = static_cast<const int32_t*>(args.places.data);
  params.beta_rows = static_cast<const float*>(args.beta_rows.data);
  params.a = args.a ? static_cast<float*>(args.a->data) : nullptr;
  params.system = static_cast<float*>(args.system.data);
  params.qk = static_cast<float*>(args.qk.data);
  params.num_chunks = static_cast<int32_t>(n);
  params.chunk_size = static_cast<int32_t>(c);
  params.num_writes = static_cast<int32_t>(args.num_writes);
  params.num_reads = static_cast<int32_t>(reads);
  return params;
}

}  // namespace

const KernelInfo& pair_matrices_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<PairMatricesParams>(kName, kFields, run_host);
  return info;
}

void pair_matrices(plancap::Sink& sink, const PairMatricesArgs& args) {
  // Check and fill.
  const PairMatricesParams params = check_and_fill(sink.target(), args);

  // Choose.
  plancap::Launch launch;
  launch.kernel = &pair_matrices_info();
  launch.params = &params;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, pair_matrices_geometry(params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
