#include <algorithm>

#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/layer/token_gates/token_gates.h"
#include "kernels/layer/token_gates/token_gates_math.h"

namespace sdm {
namespace {

constexpr int64_t kTokensAtOnce = 256;
constexpr int64_t kElementWork = 16;  // row elements that a token's gates cost as much as

SDM_MULTIVERSION
void sequence_gates(const TokenGatesParams& params, int64_t batch, int32_t head, int64_t first,
                    int64_t last) {
  const HeadGate gate = head_gate(params, head);
  for (int64_t t = first; t < last; ++t) token_head_gates(params, {batch, t}, head, gate);
}

}  // namespace

void token_gates_host(const TokenGatesParams& params) {
  const int64_t parts = (params.num_tokens + kTokensAtOnce - 1) / kTokensAtOnce;
  const int64_t sequences = int64_t{params.num_batches} * params.num_heads;
  const int64_t work = sequences * params.num_tokens * kElementWork;
#pragma omp parallel if (work > kSerialElements)
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t unit = 0; unit < sequences * parts; ++unit) {
      const int64_t sequence = unit / parts, first = unit % parts * kTokensAtOnce;
      const int64_t last = std::min<int64_t>(first + kTokensAtOnce, params.num_tokens);
      sequence_gates(params, sequence / params.num_heads,
                     static_cast<int32_t>(sequence % params.num_heads), first, last);
    }
  }
}

}  // namespace sdm
