#include "kernels/step/blas_gemm/blas_gemm.h"
#include "plancap/base/error.h"
#include "plancap/format/param_view.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

// A patched pointer arrives as the bytes it has moved on: by whole shares of a step.
void check_share(const ParamView& view, const char* field, const float* moved, Access access,
                 uint64_t count) {
  const auto bytes = reinterpret_cast<uint64_t>(moved);
  const uint64_t share = count * sizeof(float);
  view.expect(bytes % share == 0, field, cat("a multiple of a step's ", share, " bytes"),
              cat(bytes));
  view.share<float>(field, access, count, static_cast<int64_t>(bytes / share));
}

}  // namespace

void check_blas_gemm_plan(const ParamView& view) {
  const auto& params = view.get<BlasGemmParams>();
  const int64_t p = params.num_parallel, c = params.chunk_size, hd = params.hd;
  view.range("num_parallel", p, 1, 0x7fffffff);
  view.range("chunk_size", c, 1, 256);
  view.range("hd", hd, 1, 1 << 20);
  view.range("reserved", params.reserved, 0, 0);
  check_share(view, "d_u", params.d_u, Access::kReadWrite, volume({p, c, hd}));
  check_share(view, "x", params.x, Access::kRead, volume({p, c, c}));
  check_share(view, "d_dv", params.d_dv, Access::kRead, volume({p, c, hd}));
}

}  // namespace sdm
