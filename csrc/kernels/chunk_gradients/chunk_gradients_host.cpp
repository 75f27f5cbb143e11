#include "kernels/chunk_gradients/chunk_gradients.h"
#include "kernels/chunk_gradients/chunk_gradients_math.h"
#include "kernels/common/float_mode.h"

namespace sdm {

void chunk_gradients_host(const ChunkGradientsParams& params) {
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int32_t n = 0; n < params.num_chunks; ++n) {
      const ChunkGradients chunk(params, n);
      for (int32_t i = 0; i < chunk.size(); ++i) chunk.event(i);
      for (int32_t i = 0; i < chunk.size(); ++i) chunk.gate(i);
      if (params.gates == nullptr) continue;
      for (int32_t t = 0; t < chunk.valid_tokens(); ++t) chunk.token_gate(t);
    }
  }
}

}  // namespace sdm
