#include "kernels/chunk/chunk_readings/chunk_readings.h"
#include "kernels/chunk/chunk_readings/chunk_readings_geometry.h"
#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/step_launch.h"

namespace sdm {
namespace {

using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "chunk_readings";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(ChunkReadingsParams, reading),    SDM_FIELD(ChunkReadingsParams, qk),
    SDM_FIELD(ChunkReadingsParams, delta),      SDM_FIELD(ChunkReadingsParams, readings),
    SDM_FIELD(ChunkReadingsParams, num_tokens), SDM_FIELD(ChunkReadingsParams, first_step),
    SDM_FIELD(ChunkReadingsParams, num_chunks), SDM_FIELD(ChunkReadingsParams, num_parallel),
    SDM_FIELD(ChunkReadingsParams, chunk_size), SDM_FIELD(ChunkReadingsParams, hd),
    SDM_FIELD(ChunkReadingsParams, heads),      SDM_FIELD(ChunkReadingsParams, readings_type),
};

void run_host(const void* params) {
  chunk_readings_host(*static_cast<const ChunkReadingsParams*>(params));
}

ChunkReadingsParams check_and_fill(const plancap::Target& target, const ChunkReadingsArgs& args) {
  expect_tensor(kName, "reading", args.reading, Dtype::kFloat32, {"N", "C", "hd"});
  const int64_t n = args.reading.shape[0], c = args.reading.shape[1], hd = args.reading.shape[2];
  expect_head_dim(kName, hd);
  expect_tensor(kName, "qk", args.qk, Dtype::kFloat32, {n, c, c});
  expect_tensor(kName, "delta", args.delta, Dtype::kFloat32, {n, c, hd});
  const ValueRows rows = expect_value_rows(kName, "readings", args.readings, hd);
  // One write and one read: entries play no part here.
  expect_chunks(kName,
                {rows.tokens, static_cast<int32_t>(args.first_step),
                 static_cast<int32_t>(rows.sequences), static_cast<int32_t>(c), 1, 1},
                n);
  expect_device(kName, "reading", args.reading, target.device);
  expect_device(kName, "qk", args.qk, target.device);
  expect_device(kName, "delta", args.delta, target.device);
  expect_device(kName, "readings", args.readings, target.device);

  ChunkReadingsParams params{};
  params.reading = static_cast<const float*>(args.reading.data);
  params.qk = static_cast<const float*>(args.qk.data);
  params.delta = static_cast<const float*>(args.delta.data);
  params.readings = args.readings.data;
  params.num_tokens = rows.tokens;
  params.first_step = static_cast<int32_t>(args.first_step);
  params.num_chunks = static_cast<int32_t>(n);
  params.num_parallel = static_cast<int32_t>(rows.sequences);
  params.chunk_size = static_cast<int32_t>(c);
  params.hd = static_cast<int32_t>(hd);
  params.heads = static_cast<int32_t>(rows.heads);
  params.readings_type = rows.type;
  return params;
}

}  // namespace

const KernelInfo& chunk_readings_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<ChunkReadingsParams>(kName, kFields, run_host);
  return info;
}

void chunk_readings(plancap::Sink& sink, const ChunkReadingsArgs& args) {
  // Check and fill.
  const ChunkReadingsParams params = check_and_fill(sink.target(), args);

  // Choose.
  plancap::Launch launch;
  launch.kernel = &chunk_readings_info();
  launch.params = &params;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, chunk_readings_geometry(sink.target(), params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
