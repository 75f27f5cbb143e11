#include "kernels/chunk_prepare/chunk_prepare.h"
#include "kernels/chunk_prepare/chunk_prepare_math.h"
#include "kernels/common/float_mode.h"

namespace sdm {

void chunk_prepare_host(const ChunkPrepareParams& params) {
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int32_t n = 0; n < params.num_chunks; ++n) {
      const ChunkPrepare chunk(params, n);
      for (int32_t t = 0; t < params.chunk_size; ++t) chunk.beta_row(t);
      for_each_group(chunk.inputs(), [&](const GroupStart& start) { chunk.group(start); });
    }
  }
}

}  // namespace sdm
