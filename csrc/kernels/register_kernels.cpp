#include "kernels/register_kernels.h"

#include "kernels/layer/decode_step/decode_step.h"
#include "kernels/layer/merge_readings/merge_readings.h"
#include "kernels/layer/slot_select/slot_select.h"
#include "kernels/layer/slot_select_grad/slot_select_grad.h"
#include "kernels/layer/token_gates/token_gates.h"
#include "kernels/layer/token_gates_grad/token_gates_grad.h"
#include "kernels/linear/bf16_linear/bf16_linear.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group.h"
#include "kernels/rows/plane_reduce/plane_reduce.h"
#include "kernels/step/blas_gemm/blas_gemm.h"
#include "kernels/step/step_kernels.h"
#include "plancap/format/registry.h"

namespace sdm {

void register_kernels() {
  for (const StepKernel* kernel : step_kernels()) plancap::register_kernel(kernel->info());
  plancap::register_kernel(plane_reduce_info());
  plancap::register_kernel(bf16_linear_info());
  plancap::register_kernel(bf16_linear_group_info());
  plancap::register_kernel(slot_select_info());
  plancap::register_kernel(slot_select_grad_info());
  plancap::register_kernel(blas_gemm_info());
  plancap::register_kernel(token_gates_info());
  plancap::register_kernel(token_gates_grad_info());
  plancap::register_kernel(decode_step_info());
  plancap::register_kernel(merge_readings_info());
}

}  // namespace sdm
