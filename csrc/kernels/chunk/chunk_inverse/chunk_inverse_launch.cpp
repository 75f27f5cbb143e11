#include <utility>
#include <vector>

#include "kernels/chunk/chunk_inverse/chunk_inverse.h"
#include "kernels/chunk/chunk_inverse/chunk_inverse_geometry.h"
#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/step_launch.h"

namespace sdm {
namespace {

using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "chunk_inverse";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(ChunkInverseParams, system),     SDM_FIELD(ChunkInverseParams, qk),
    SDM_FIELD(ChunkInverseParams, beta_rows),  SDM_FIELD(ChunkInverseParams, x),
    SDM_FIELD(ChunkInverseParams, qx),         SDM_FIELD(ChunkInverseParams, scaled),
    SDM_FIELD(ChunkInverseParams, num_chunks), SDM_FIELD(ChunkInverseParams, chunk_size),
    SDM_FIELD(ChunkInverseParams, wide),
};

void run_host(const void* params) {
  chunk_inverse_host(*static_cast<const ChunkInverseParams*>(params));
}

bool aligned(const TensorRef& tensor) { return reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0; }

ChunkInverseParams check_and_fill(const plancap::Target& target, const ChunkInverseArgs& args) {
  expect_tensor(kName, "system", args.system, Dtype::kFloat32, {"N", "C", "C"});
  const int64_t n = args.system.shape[0], c = args.system.shape[1];
  SDM_EXPECT(args.x.has_value() == args.qx.has_value(), kValue, kName, "qx",
             "x and qx both, or neither", args.x ? "x alone" : "qx alone");
  std::vector<std::pair<const char*, const TensorRef*>> matrices = {
      {"system", &args.system}, {"qk", &args.qk}, {"scaled", &args.scaled}};
  if (args.x) matrices.insert(matrices.end(), {{"x", &*args.x}, {"qx", &*args.qx}});
  for (const auto& [name, tensor] : matrices) {
    expect_tensor(kName, name, *tensor, Dtype::kFloat32, {n, c, c});
  }
  expect_chunk_size(kName, c);
  expect_num_parallel(kName, n, 1);
  expect_numel(kName, "beta", args.beta, Dtype::kFloat32, n * c);
  for (const auto& [name, tensor] : matrices) expect_device(kName, name, *tensor, target.device);
  expect_device(kName, "beta", args.beta, target.device);

  ChunkInverseParams params{};
  params.system = static_cast<const float*>(args.system.data);
  params.qk = static_cast<const float*>(args.qk.data);
  params.beta_rows = static_cast<const float*>(args.beta.data);
  params.x = args.x ? static_cast<float*>(args.x->data) : nullptr;
  params.qx = args.qx ? static_cast<float*>(args.qx->data) : nullptr;
  params.scaled = static_cast<float*>(args.scaled.data);
  params.num_chunks = static_cast<int32_t>(n);
  params.chunk_size = static_cast<int32_t>(c);
  params.wide = c % 4 == 0 && aligned(args.system) && aligned(args.qk) ? 1 : 0;
  return params;
}

}  // namespace

const KernelInfo& chunk_inverse_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<ChunkInverseParams>(kName, kFields, run_host);
  return info;
}

void chunk_inverse(plancap::Sink& sink, const ChunkInverseArgs& args) {
  // Check and fill.
  const ChunkInverseParams params = check_and_fill(sink.target(), args);

  // Choose.
  plancap::Launch launch;
  launch.kernel = &chunk_inverse_info();
  launch.params = &params;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, chunk_inverse_geometry(params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
