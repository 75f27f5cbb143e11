#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/rows/plane_reduce/plane_reduce.h"
#include "kernels/rows/plane_reduce/plane_reduce_math.h"

namespace sdm {
namespace {

// A token's entries [first, first + width): the vector axis is the entry.
SDM_MULTIVERSION
void reduce_token(const PlaneReduceParams& params, int64_t first) {
  if (plane_entry_is_padding(params, first)) {
    for (int64_t i = first; i < first + params.width; ++i) params.out[i] = 0.0f;
  } else {
    for (int64_t i = first; i < first + params.width; ++i) params.out[i] = reduced(params, i);
  }
}

}  // namespace

void plane_reduce_host(const PlaneReduceParams& params) {
  const int64_t elements = params.count * params.num_planes;
#pragma omp parallel if (elements > kSerialElements)
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t token = 0; token < params.count / params.width; ++token) {
      reduce_token(params, token * params.width);
    }
  }
}

}  // namespace sdm
