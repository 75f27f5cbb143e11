#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/layer/token_gates_grad/token_gates_grad.h"
#include "kernels/layer/token_gates_grad/token_gates_grad_math.h"

namespace sdm {
namespace {

constexpr int64_t kElementWork = 32;  // row elements that a token's gradients cost as much as

SDM_MULTIVERSION
void head_gradients(const TokenGatesGradParams& params, int32_t head) {
  const int64_t tokens = int64_t{params.num_batches} * params.num_tokens;
  const HeadGate gate = head_gate(params, head);
  GateSums groups[kSumGroups];
  for (int32_t group = 0; group < kSumGroups && int64_t{group} * kGroupLanes < tokens; ++group) {
    GateSums lanes[kGroupLanes];
    for (int64_t first = int64_t{group} * kGroupLanes; first < tokens; first += kSumLanes) {
      for (int64_t lane = 0; lane < kGroupLanes && first + lane < tokens; ++lane) {
        const auto flat = static_cast<uint32_t>(first + lane);
        lanes[lane] = add_token(params, flat, head, gate, lanes[lane]);
      }
    }
    for (int32_t count = kGroupLanes / 2; count > 0; count /= 2) {
      for (int32_t i = 0; i < count; ++i) lanes[i] = plus(lanes[2 * i], lanes[2 * i + 1]);
    }
    groups[group] = lanes[0];
  }
  store_sums(params, head, gate, groups);
}

}  // namespace

void token_gates_grad_host(const TokenGatesGradParams& params) {
  const int64_t tokens = int64_t{params.num_batches} * params.num_tokens;
#pragma omp parallel if (tokens * params.num_heads * kElementWork > kSerialElements)
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int32_t head = 0; head < params.num_heads; ++head) head_gradients(params, head);
  }
}

}  // namespace sdm
