#include "kernels/chunk/token_gradients/token_gradients.h"
#include "kernels/chunk/token_gradients/token_gradients_geometry.h"
#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/step_launch.h"

namespace sdm {
namespace {

using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "token_gradients";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(TokenGradientsParams, d_u),          SDM_FIELD(TokenGradientsParams, innovation),
    SDM_FIELD(TokenGradientsParams, beta_rows),    SDM_FIELD(TokenGradientsParams, dv),
    SDM_FIELD(TokenGradientsParams, dbeta),        SDM_FIELD(TokenGradientsParams, num_tokens),
    SDM_FIELD(TokenGradientsParams, first_step),   SDM_FIELD(TokenGradientsParams, num_chunks),
    SDM_FIELD(TokenGradientsParams, num_parallel), SDM_FIELD(TokenGradientsParams, chunk_size),
    SDM_FIELD(TokenGradientsParams, hd),           SDM_FIELD(TokenGradientsParams, heads),
    SDM_FIELD(TokenGradientsParams, dv_type),      SDM_FIELD(TokenGradientsParams, dbeta_type),
    SDM_FIELD(TokenGradientsParams, wide),
};

void run_host(const void* params) {
  token_gradients_host(*static_cast<const TokenGradientsParams*>(params));
}

bool aligned(const TensorRef& tensor, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(tensor.data) % bytes == 0;
}

TokenGradientsParams check_and_fill(const plancap::Target& target, const TokenGradientsArgs& args) {
  TokenGradientsParams params{};
  expect_tensor(kName, "d_u", args.d_u, Dtype::kFloat32, {"N", "C", "hd"});
  const int64_t n = args.d_u.shape[0], c = args.d_u.shape[1], hd = args.d_u.shape[2];
  expect_head_dim(kName, hd);
  const ValueRows dv = expect_value_rows(kName, "dv", args.dv, hd);
  const int64_t p = dv.sequences, t = dv.tokens;
  params.dbeta_type = expect_values(kName, "dbeta", args.dbeta, {p, t, 1});
  // One write and one read: entries play no part here.
  expect_chunks(kName,
                {t, static_cast<int32_t>(args.first_step), static_cast<int32_t>(p),
                 static_cast<int32_t>(c), 1, 1},
                n);
  expect_tensor(kName, "innovation", args.innovation, Dtype::kFloat32, {n, c, hd});
  expect_numel(kName, "beta", args.beta, Dtype::kFloat32, n * c);
  expect_device(kName, "d_u", args.d_u, target.device);
  expect_device(kName, "innovation", args.innovation, target.device);
  expect_device(kName, "beta", args.beta, target.device);
  expect_device(kName, "dv", args.dv, target.device);
  expect_device(kName, "dbeta", args.dbeta, target.device);

  params.d_u = static_cast<const float*>(args.d_u.data);
  params.innovation = static_cast<const float*>(args.innovation.data);
  params.beta_rows = static_cast<const float*>(args.beta.data);
  params.dv = args.dv.data;
  params.dbeta = args.dbeta.data;
  params.num_tokens = t;
  params.first_step = static_cast<int32_t>(args.first_step);
  params.num_chunks = static_cast<int32_t>(n);
  params.num_parallel = static_cast<int32_t>(p);
  params.chunk_size = static_cast<int32_t>(c);
  params.hd = static_cast<int32_t>(hd);
  params.heads = static_cast<int32_t>(dv.heads);
  params.dv_type = dv.type;
  const bool wide = hd % 4 == 0 && aligned(args.d_u, 16) && aligned(args.innovation, 16) &&
                    aligned(args.dv, 4 * dtype_bytes(args.dv.dtype));
  params.wide = wide ? 1 : 0;
  return params;
}

}  // namespace

const KernelInfo& token_gradients_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<TokenGradientsParams>(kName, kFields, run_host);
  return info;
}

void token_gradients(plancap::Sink& sink, const TokenGradientsArgs& args) {
  // Check and fill.
  const TokenGradientsParams params = check_and_fill(sink.target(), args);

  // Choose.
  plancap::Launch launch;
  launch.kernel = &token_gradients_info();
  launch.params = &params;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, token_gradients_geometry(params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
