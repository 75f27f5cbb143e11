#include "kernels/common/launch/step_launch.h"
#include "kernels/layer/token_gates/token_gates.h"
#include "kernels/layer/token_gates/token_gates_geometry.h"
#include "kernels/layer/token_operands.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "token_gates";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(TokenGatesParams, a),
    SDM_FIELD(TokenGatesParams, b),
    SDM_FIELD(TokenGatesParams, a_log),
    SDM_FIELD(TokenGatesParams, dt_bias),
    SDM_FIELD(TokenGatesParams, beta),
    SDM_FIELD(TokenGatesParams, g),
    SDM_FIELD(TokenGatesParams, a_batch_stride),
    SDM_FIELD(TokenGatesParams, a_token_stride),
    SDM_FIELD(TokenGatesParams, b_batch_stride),
    SDM_FIELD(TokenGatesParams, b_token_stride),
    SDM_FIELD(TokenGatesParams, num_batches),
    SDM_FIELD(TokenGatesParams, num_tokens),
    SDM_FIELD(TokenGatesParams, num_heads),
    SDM_FIELD(TokenGatesParams, a_type),
    SDM_FIELD(TokenGatesParams, b_type),
    SDM_FIELD(TokenGatesParams, a_log_type),
    SDM_FIELD(TokenGatesParams, dt_bias_type),
};

// Loaded before the wait (token_gates.cuh).
constexpr const char* kEarly[] = {"a_log", "dt_bias"};

void run_host(const void* params) {
  token_gates_host(*static_cast<const TokenGatesParams*>(params));
}

TokenGatesParams check_and_fill(const plancap::Target& target, const TokenGatesArgs& args) {
  // Check.
  TokenGatesParams params{};
  SDM_EXPECT(args.a.ndim == 3, kValue, kName, "a", "float32 or bfloat16 [B, T, H]",
             args.a.describe());
  const int64_t batches = args.a.shape[0], tokens = args.a.shape[1], heads = args.a.shape[2];
  params.a_type = expect_token_values(kName, "a", args.a, batches, tokens, heads);
  expect_call_sizes(kName, "a", batches, tokens, heads);
  params.b_type = expect_token_values(kName, "b", args.b, batches, tokens, heads);
  params.a_log_type = expect_head_values(kName, "A_log", args.a_log, heads);
  params.dt_bias_type = expect_head_values(kName, "dt_bias", args.dt_bias, heads);
  expect_tensor(kName, "beta", args.beta, Dtype::kFloat32, {batches * heads, tokens, 1});
  expect_tensor(kName, "g", args.g, Dtype::kFloat32, {batches * heads, tokens, 1});
  expect_device(kName, "a", args.a, target.device);
  expect_device(kName, "b", args.b, target.device);
  expect_device(kName, "A_log", args.a_log, target.device);
  expect_device(kName, "dt_bias", args.dt_bias, target.device);
  expect_device(kName, "beta", args.beta, target.device);
  expect_device(kName, "g", args.g, target.device);

  // Fill.
  const TokenStrides a = token_strides(args.a), b = token_strides(args.b);
  params.a = args.a.data;
  params.b = args.b.data;
  params.a_log = args.a_log.data;
  params.dt_bias = args.dt_bias.data;
  params.beta = static_cast<float*>(args.beta.data);
  params.g = static_cast<float*>(args.g.data);
  params.a_batch_stride = a.batch, params.a_token_stride = a.token;
  params.b_batch_stride = b.batch, params.b_token_stride = b.token;
  params.num_batches = static_cast<int32_t>(batches);
  params.num_tokens = static_cast<int32_t>(tokens);
  params.num_heads = static_cast<int32_t>(heads);
  return params;
}

}  // namespace

const KernelInfo& token_gates_info() {
  static constexpr KernelInfo info = plancap::with_early(
      plancap::make_kernel_info<TokenGatesParams>(kName, kFields, run_host, check_token_gates_plan),
      kEarly);
  return info;
}

void token_gates(plancap::Sink& sink, const TokenGatesArgs& args) {
  // Check and fill.
  const TokenGatesParams params = check_and_fill(sink.target(), args);

  // Describe.
  const auto span = [&](int64_t batch_stride, int64_t token_stride) {
    return strided_span({{params.num_batches, batch_stride}, {params.num_tokens, token_stride}},
                        params.num_heads);
  };
  const auto named = [](const char* field, const char* name, const TensorRef& tensor,
                        uint64_t span) {
    return spanned(field, name, tensor, Access::kRead, span);
  };
  plancap::Launch launch;
  launch.kernel = &token_gates_info();
  launch.params = &params;
  launch.operands = {
      named("a", "gate_a", args.a, span(params.a_batch_stride, params.a_token_stride)),
      named("b", "gate_b", args.b, span(params.b_batch_stride, params.b_token_stride)),
      named("a_log", "A_log", args.a_log, 0),
      named("dt_bias", "dt_bias", args.dt_bias, 0),
      whole("beta", args.beta, Access::kWrite),
      whole("g", args.g, Access::kWrite)};

  // Choose.
  if (params.num_batches == 0 || params.num_tokens == 0) launch.config.grid.x = 0;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, token_gates_geometry(params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
