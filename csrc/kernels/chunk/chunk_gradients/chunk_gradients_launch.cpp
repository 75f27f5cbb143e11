#include "kernels/chunk/chunk_gradients/chunk_gradients.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_geometry.h"
#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/row_checks.h"
#include "kernels/common/launch/step_launch.h"

namespace sdm {
namespace {

using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "chunk_gradients";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(ChunkGradientsParams, events),       SDM_FIELD(ChunkGradientsParams, beta_rows),
    SDM_FIELD(ChunkGradientsParams, d_m),          SDM_FIELD(ChunkGradientsParams, d_qk),
    SDM_FIELD(ChunkGradientsParams, dpd),          SDM_FIELD(ChunkGradientsParams, dkeff),
    SDM_FIELD(ChunkGradientsParams, d_total),      SDM_FIELD(ChunkGradientsParams, dqeff),
    SDM_FIELD(ChunkGradientsParams, terms),        SDM_FIELD(ChunkGradientsParams, gates),
    SDM_FIELD(ChunkGradientsParams, dk),           SDM_FIELD(ChunkGradientsParams, dq),
    SDM_FIELD(ChunkGradientsParams, dg),           SDM_FIELD(ChunkGradientsParams, num_tokens),
    SDM_FIELD(ChunkGradientsParams, first_step),   SDM_FIELD(ChunkGradientsParams, num_chunks),
    SDM_FIELD(ChunkGradientsParams, num_parallel), SDM_FIELD(ChunkGradientsParams, chunk_size),
    SDM_FIELD(ChunkGradientsParams, num_writes),   SDM_FIELD(ChunkGradientsParams, num_reads),
    SDM_FIELD(ChunkGradientsParams, num_gates),    SDM_FIELD(ChunkGradientsParams, dk_type),
    SDM_FIELD(ChunkGradientsParams, dq_type),      SDM_FIELD(ChunkGradientsParams, dg_type),
};

template <GradientPass kPass>
void run_host(const void* params) {
  chunk_gradients_host(*static_cast<const ChunkGradientsParams*>(params), kPass);
}

template <GradientPass kPass>
constexpr KernelInfo kInfo =
    plancap::make_kernel_info<ChunkGradientsParams>(kName, kFields, run_host<kPass>);

// P, T, W and R from the outputs' shapes.
ChunkShape check_outputs(const ChunkGradientsArgs& args) {
  expect_values(kName, "dk", args.dk, {"P", "T", "W"});
  const int64_t p = args.dk.shape[0], t = args.dk.shape[1];
  expect_values(kName, "dq", args.dq, {p, t, "R"});
  return {t,
          static_cast<int32_t>(args.first_step),
          static_cast<int32_t>(p),
          static_cast<int32_t>(args.chunk_size),
          static_cast<int32_t>(args.dk.shape[2]),
          static_cast<int32_t>(args.dq.shape[2])};
}

void check_inputs(const ChunkGradientsArgs& args, int64_t chunks, const ChunkShape& shape) {
  const int64_t c = shape.chunk_size;
  expect_event_pairs(kName, "events", args.events, chunks, shape.events());
  expect_event_pairs(kName, "terms", args.terms, chunks, shape.events());
  expect_numel(kName, "beta", args.beta, Dtype::kFloat32, chunks * c);
  expect_tensor(kName, "d_m", args.d_m, Dtype::kFloat32, {chunks, c, c});
  expect_tensor(kName, "d_qk", args.d_qk, Dtype::kFloat32, {chunks, c, c});
  expect_numel(kName, "dpd", args.dpd, Dtype::kFloat32, chunks * shape.writes());
  expect_numel(kName, "dkeff", args.dkeff, Dtype::kFloat32, chunks * shape.writes());
  expect_numel(kName, "d_total", args.d_total, Dtype::kFloat32, chunks * shape.writes());
  expect_numel(kName, "dqeff", args.dqeff, Dtype::kFloat32, chunks * shape.reads());
}

// Returns the gates per token.
int64_t check_gates(const ChunkGradientsArgs& args, int64_t chunks, const ChunkShape& shape) {
  const int64_t w = shape.num_writes;
  const int64_t gates = args.dg.ndim == 3 && args.dg.shape[2] == 1 ? 1 : w;
  expect_values(kName, "dg", args.dg, {shape.num_parallel, shape.num_tokens, gates});
  SDM_EXPECT(args.gates.has_value() == (gates < w), kValue, kName, "gates",
             gates < w ? "scratch for the gates of each write" : "None (dg has them all)",
             args.gates ? args.gates->describe() : "None");
  if (args.gates) {
    expect_tensor(kName, "gates", *args.gates, Dtype::kFloat64, {chunks * shape.chunk_size, w});
  }
  return gates;
}

void check_devices(const plancap::Target& target, const ChunkGradientsArgs& args) {
  const auto expect = [&](const char* name, const TensorRef& tensor) {
    expect_device(kName, name, tensor, target.device);
  };
  expect("events", args.events), expect("beta", args.beta);
  expect("d_m", args.d_m), expect("d_qk", args.d_qk);
  expect("dpd", args.dpd), expect("dkeff", args.dkeff);
  expect("d_total", args.d_total), expect("dqeff", args.dqeff), expect("terms", args.terms);
  if (args.gates) expect("gates", *args.gates);
  expect("dk", args.dk), expect("dq", args.dq), expect("dg", args.dg);
}

void fill_pointers(ChunkGradientsParams& params, const ChunkGradientsArgs& args) {
  const auto floats = [](const TensorRef& tensor) {
    return static_cast<const float*>(tensor.data);
  };
  params.events = static_cast<const ChunkEvent*>(args.events.data);
  params.beta_rows = floats(args.beta);
  params.d_m = floats(args.d_m);
  params.d_qk = floats(args.d_qk);
  params.dpd = floats(args.dpd);
  params.dkeff = floats(args.dkeff);
  params.d_total = floats(args.d_total);
  params.dqeff = floats(args.dqeff);
  params.terms = static_cast<EventTerms*>(args.terms.data);
  params.gates = args.gates ? static_cast<double*>(args.gates->data) : nullptr;
  params.dk = args.dk.data;
  params.dq = args.dq.data;
  params.dg = args.dg.data;
}

}  // namespace

const KernelInfo& chunk_gradients_info(GradientPass pass) {
  switch (pass) {
    case GradientPass::kRuns:
      return kInfo<GradientPass::kRuns>;
    case GradientPass::kGates:
      return kInfo<GradientPass::kGates>;
    case GradientPass::kTokens:
      return kInfo<GradientPass::kTokens>;
    case GradientPass::kWhole:
      return kInfo<GradientPass::kWhole>;
  }
  SDM_INTERNAL_CHECK(false, "chunk_gradients has no pass ", static_cast<int>(pass));
}

void chunk_gradients(plancap::Sink& sink, const ChunkGradientsArgs& args) {
  // Check.
  const ChunkShape shape = check_outputs(args);
  const int64_t chunks = args.events.ndim == 3 ? args.events.shape[0] : 0;
  expect_chunks(kName, shape, chunks);
  check_inputs(args, chunks, shape);
  const int64_t gates = check_gates(args, chunks, shape);
  check_devices(sink.target(), args);

  // Fill.
  ChunkGradientsParams params{};
  fill_pointers(params, args);
  put_shape(params, shape, chunks);
  params.num_gates = static_cast<int32_t>(gates);
  params.dk_type = *plain_row_type(args.dk.dtype);
  params.dq_type = *plain_row_type(args.dq.dtype);
  params.dg_type = *plain_row_type(args.dg.dtype);

  // Choose and launch.
  for (const GradientPass pass : chunk_gradients_passes(sink.target(), params)) {
    plancap::Launch launch;
    launch.kernel = &chunk_gradients_info(pass);
    launch.params = &params;
    if (sink.target().backend == plancap::Backend::kCuda) {
      use_geometry(launch, chunk_gradients_geometry(sink.target(), params, pass), false);
    }
    sink.launch(launch);
  }
}

}  // namespace sdm
