#include "kernels/common/float_mode.h"
#include "kernels/step_lists/step_lists.h"
#include "kernels/step_lists/step_lists_math.h"

namespace sdm {

void step_lists_host(const StepListsParams& params) {
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int32_t n = 0; n < params.num_chunks; ++n) {
      const StepLists chunk(params, n);
      for (int32_t t = 0; t < chunk.tokens(); ++t) chunk.token(t);
      const GroupStart end =
          for_each_group(chunk, [&](const GroupStart& start) { chunk.group(start); });
      const int32_t used = end.ordinal;
      chunk.count(used);
      for (int32_t i = used; i < chunk.writes(); ++i) chunk.unused_group(i, used);
      const int32_t places = chunk.valid_writes() + used;
      for (int32_t i = places; i < 2 * chunk.writes(); ++i) chunk.unused_place(i);
    }
  }
}

}  // namespace sdm
