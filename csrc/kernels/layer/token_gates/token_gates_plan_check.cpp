#include "kernels/layer/token_gates/token_gates.h"
#include "kernels/layer/token_operands.h"

namespace sdm {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

void check_token_gates_plan(const ParamView& view) {
  const auto& params = view.get<TokenGatesParams>();
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
  reach_values(
      view, "a", Access::kRead, params.a_type,
      strided_span({{batches, params.a_batch_stride}, {tokens, params.a_token_stride}}, heads));
  reach_values(
      view, "b", Access::kRead, params.b_type,
      strided_span({{batches, params.b_batch_stride}, {tokens, params.b_token_stride}}, heads));
  const auto of_head = static_cast<uint64_t>(heads);
  reach_values(view, "a_log", Access::kRead, params.a_log_type, of_head);
  reach_values(view, "dt_bias", Access::kRead, params.dt_bias_type, of_head);
  view.reach<float>("beta", Access::kWrite, volume({batches, heads, tokens}));
  view.reach<float>("g", Access::kWrite, volume({batches, heads, tokens}));
}

}  // namespace sdm
