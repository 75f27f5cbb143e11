#include "kernels/register_kernels.h"

#include "kernels/linear/bf16_linear/bf16_linear.h"
#include "kernels/rows/plane_reduce/plane_reduce.h"
#include "kernels/step/blas_gemm/blas_gemm.h"
#include "kernels/step/fx_read/fx_read.h"
#include "kernels/step/fx_write/fx_write.h"
#include "kernels/step/gx_gds/gx_gds.h"
#include "kernels/step/gx_gemm/gx_gemm.h"
#include "kernels/step/gx_gwr/gx_gwr.h"
#include "kernels/step/gx_pa2/gx_pa2.h"
#include "plancap/format/registry.h"

namespace sdm {

void register_kernels() {
  plancap::register_kernel(gx_gwr_info());
  plancap::register_kernel(gx_gemm_info());
  plancap::register_kernel(gx_pa2_info());
  plancap::register_kernel(gx_gds_info());
  plancap::register_kernel(fx_read_info());
  plancap::register_kernel(fx_write_info());
  plancap::register_kernel(plane_reduce_info());
  plancap::register_kernel(bf16_linear_info());
  plancap::register_kernel(blas_gemm_info());
}

}  // namespace sdm
