#include "kernels/register_kernels.h"

#include "kernels/gx_gemm/gx_gemm.h"
#include "plancap/registry.h"

namespace sdm {

void register_kernels() { plancap::register_kernel(gx_gemm_info()); }

}  // namespace sdm
