#include "kernels/common/launch/step_launch.h"
#include "kernels/layer/token_gates_grad/token_gates_grad.h"
#include "kernels/layer/token_gates_grad/token_gates_grad_geometry.h"
#include "kernels/layer/token_operands.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "token_gates_grad";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(TokenGatesGradParams, d_beta),
    SDM_FIELD(TokenGatesGradParams, d_g),
    SDM_FIELD(TokenGatesGradParams, a),
    SDM_FIELD(TokenGatesGradParams, b),
    SDM_FIELD(TokenGatesGradParams, a_log),
    SDM_FIELD(TokenGatesGradParams, dt_bias),
    SDM_FIELD(TokenGatesGradParams, d_a),
    SDM_FIELD(TokenGatesGradParams, d_b),
    SDM_FIELD(TokenGatesGradParams, d_a_log),
    SDM_FIELD(TokenGatesGradParams, d_dt_bias),
    SDM_FIELD(TokenGatesGradParams, a_batch_stride),
    SDM_FIELD(TokenGatesGradParams, a_token_stride),
    SDM_FIELD(TokenGatesGradParams, b_batch_stride),
    SDM_FIELD(TokenGatesGradParams, b_token_stride),
    SDM_FIELD(TokenGatesGradParams, num_batches),
    SDM_FIELD(TokenGatesGradParams, num_tokens),
    SDM_FIELD(TokenGatesGradParams, num_heads),
    SDM_FIELD(TokenGatesGradParams, a_type),
    SDM_FIELD(TokenGatesGradParams, b_type),
    SDM_FIELD(TokenGatesGradParams, a_log_type),
    SDM_FIELD(TokenGatesGradParams, dt_bias_type),
};

void run_host(const void* params) {
  token_gates_grad_host(*static_cast<const TokenGatesGradParams*>(params));
}

void check_devices(const TokenGatesGradArgs& args, Device device) {
  expect_device(kName, "d_beta", args.d_beta, device);
  expect_device(kName, "d_g", args.d_g, device);
  expect_device(kName, "a", args.a, device);
  expect_device(kName, "b", args.b, device);
  expect_device(kName, "A_log", args.a_log, device);
  expect_device(kName, "dt_bias", args.dt_bias, device);
  expect_device(kName, "d_a", args.d_a, device);
  expect_device(kName, "d_b", args.d_b, device);
  expect_device(kName, "d_A_log", args.d_a_log, device);
  expect_device(kName, "d_dt_bias", args.d_dt_bias, device);
}

TokenGatesGradParams check_and_fill(const plancap::Target& target, const TokenGatesGradArgs& args) {
  // Check.
  TokenGatesGradParams params{};
  SDM_EXPECT(args.a.ndim == 3, kValue, kName, "a", "float32 or bfloat16 [B, T, H]",
             args.a.describe());
  const int64_t batches = args.a.shape[0], tokens = args.a.shape[1], heads = args.a.shape[2];
  params.a_type = expect_token_values(kName, "a", args.a, batches, tokens, heads);
  expect_call_sizes(kName, "a", batches, tokens, heads);
  params.b_type = expect_token_values(kName, "b", args.b, batches, tokens, heads);
  params.a_log_type = expect_head_values(kName, "A_log", args.a_log, heads);
  params.dt_bias_type = expect_head_values(kName, "dt_bias", args.dt_bias, heads);
  expect_tensor(kName, "d_beta", args.d_beta, Dtype::kFloat32, {batches * heads, tokens, 1});
  expect_tensor(kName, "d_g", args.d_g, Dtype::kFloat32, {batches * heads, tokens, 1});
  expect_tensor(kName, "d_a", args.d_a, args.a.dtype, {batches, tokens, heads});
  expect_tensor(kName, "d_b", args.d_b, args.b.dtype, {batches, tokens, heads});
  expect_tensor(kName, "d_A_log", args.d_a_log, args.a_log.dtype, {heads});
  expect_tensor(kName, "d_dt_bias", args.d_dt_bias, args.dt_bias.dtype, {heads});
  check_devices(args, target.device);

  // Fill.
  const TokenStrides a = token_strides(args.a), b = token_strides(args.b);
  params.d_beta = static_cast<const float*>(args.d_beta.data);
  params.d_g = static_cast<const float*>(args.d_g.data);
  params.a = args.a.data;
  params.b = args.b.data;
  params.a_log = args.a_log.data;
  params.dt_bias = args.dt_bias.data;
  params.d_a = args.d_a.data;
  params.d_b = args.d_b.data;
  params.d_a_log = args.d_a_log.data;
  params.d_dt_bias = args.d_dt_bias.data;
  params.a_batch_stride = a.batch, params.a_token_stride = a.token;
  params.b_batch_stride = b.batch, params.b_token_stride = b.token;
  params.num_batches = static_cast<int32_t>(batches);
  params.num_tokens = static_cast<int32_t>(tokens);
  params.num_heads = static_cast<int32_t>(heads);
  return params;
}

plancap::Operand read(const char* field, const char* name, const TensorRef& tensor) {
  return spanned(field, name, tensor, Access::kRead, 0);
}

plancap::Operand written(const char* field, const char* name, const TensorRef& tensor) {
  return spanned(field, name, tensor, Access::kWrite, 0);
}

}  // namespace

const KernelInfo& token_gates_grad_info() {
  static constexpr KernelInfo info = plancap::make_kernel_info<TokenGatesGradParams>(
      kName, kFields, run_host, check_token_gates_grad_plan);
  return info;
}

void token_gates_grad(plancap::Sink& sink, const TokenGatesGradArgs& args) {
  // Check and fill.
  const TokenGatesGradParams params = check_and_fill(sink.target(), args);

  // Describe.
  const auto span = [&](int64_t batch_stride, int64_t token_stride) {
    return strided_span({{params.num_batches, batch_stride}, {params.num_tokens, token_stride}},
                        params.num_heads);
  };
  plancap::Launch launch;
  launch.kernel = &token_gates_grad_info();
  launch.params = &params;
  launch.operands = {read("d_beta", "d_beta", args.d_beta),
                     read("d_g", "d_g", args.d_g),
                     spanned("a", "gate_a", args.a, Access::kRead,
                             span(params.a_batch_stride, params.a_token_stride)),
                     spanned("b", "gate_b", args.b, Access::kRead,
                             span(params.b_batch_stride, params.b_token_stride)),
                     read("a_log", "A_log", args.a_log),
                     read("dt_bias", "dt_bias", args.dt_bias),
                     written("d_a", "d_gate_a", args.d_a),
                     written("d_b", "d_gate_b", args.d_b),
                     written("d_a_log", "d_A_log", args.d_a_log),
                     written("d_dt_bias", "d_dt_bias", args.d_dt_bias)};

  // Choose. Without tokens the sums are still written.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, token_gates_grad_geometry(sink.target(), params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
