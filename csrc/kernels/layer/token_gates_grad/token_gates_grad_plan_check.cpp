#include "kernels/layer/token_gates_grad/token_gates_grad.h"
#include "kernels/layer/token_gates_grad/token_gates_grad_math.h"
#include "kernels/layer/token_operands.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

// Blocks of whole groups, and of each head as many as its groups can be shared among.
void check_geometry(const ParamView& view, int64_t heads) {
  const plancap::LaunchConfig config = view.config();
  const uint32_t blocks = config.cluster.x;
  const bool fits = blocks >= 1 && kSumGroups % blocks == 0 &&
                    config.grid == plancap::Dim3{blocks * static_cast<uint32_t>(heads), 1, 1} &&
                    config.block == plancap::Dim3{kGroupLanes, 1, 1} &&
                    config.cluster == plancap::Dim3{blocks, 1, 1} &&
                    config.shared_bytes == sizeof(GateSums) * (kSumGroups + kLanes);
  view.expect(fits, "num_heads", "the launch geometry of so many heads", "another");
}

}  // namespace

void check_token_gates_grad_plan(const ParamView& view) {
  const auto& params = view.get<TokenGatesGradParams>();
  const int64_t batches = params.num_batches, tokens = params.num_tokens, heads = params.num_heads;
  check_call_sizes(view, batches, tokens, heads);
  check_plain_type(view, "a_type", params.a_type);
  check_plain_type(view, "b_type", params.b_type);
  check_plain_type(view, "a_log_type", params.a_log_type);
  check_plain_type(view, "dt_bias_type", params.dt_bias_type);
  check_token_strides(view, "a_batch_stride", params.a_batch_stride, "a_token_stride",
                      params.a_token_stride);
  check_token_strides(view, "b_batch_stride", params.b_batch_stride, "b_token_stride",
                      params.b_token_stride);
  const uint64_t values = volume({batches, heads, tokens});
  view.reach<float>("d_beta", Access::kRead, values);
  view.reach<float>("d_g", Access::kRead, values);
  reach_values(
      view, "a", Access::kRead, params.a_type,
      strided_span({{batches, params.a_batch_stride}, {tokens, params.a_token_stride}}, heads));
  reach_values(
      view, "b", Access::kRead, params.b_type,
      strided_span({{batches, params.b_batch_stride}, {tokens, params.b_token_stride}}, heads));
  const auto of_head = static_cast<uint64_t>(heads);
  reach_values(view, "a_log", Access::kRead, params.a_log_type, of_head);
  reach_values(view, "dt_bias", Access::kRead, params.dt_bias_type, of_head);
  reach_values(view, "d_a", Access::kWrite, params.a_type, values);
  reach_values(view, "d_b", Access::kWrite, params.b_type, values);
  reach_values(view, "d_a_log", Access::kWrite, params.a_log_type, of_head);
  reach_values(view, "d_dt_bias", Access::kWrite, params.dt_bias_type, of_head);
  if (view.backend() == plancap::Backend::kCuda) check_geometry(view, heads);
}

}  // namespace sdm
