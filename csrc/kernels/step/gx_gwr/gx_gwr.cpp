#include "kernels/step/gx_gwr/gx_gwr.h"

#include "kernels/common/launch/token_grid.h"
#include "kernels/step/gx_gwr/gx_gwr_shape.h"

namespace sdm {
namespace {

constexpr const char* kName = "gx_gwr";

constexpr StepRow kRows[] = {
    SDM_OPERAND(GxGwrParams, grad, "grad", kBankRows, kRead),
    SDM_OPERAND(GxGwrParams, delta, "delta", kTokenRows, kRead).loaded_early(),
    SDM_OPERAND(GxGwrParams, pd, "pd", kWriteValues, kRead).loaded_early(),
    SDM_OPERAND(GxGwrParams, slots, "slots", kWriteSlots, kRead).measures().loaded_early(),
    SDM_OPERAND(GxGwrParams, d_dv, "d_dv", kTokenRows, kWrite),
    SDM_OPERAND(GxGwrParams, dpd, "dpd", kWritePlanes, kWrite),
    SDM_SIZE(GxGwrParams, num_tokens),
    SDM_NUMBER(GxGwrParams, plane_stride),
    SDM_NUMBER(GxGwrParams, step),
    SDM_SIZE(GxGwrParams, num_parallel),
    SDM_SIZE(GxGwrParams, chunk_size),
    SDM_NUMBER(GxGwrParams, num_writes),
    SDM_NUMBER(GxGwrParams, hd),
    SDM_NUMBER(GxGwrParams, grad_type),
};

StepGeometry geometry(const plancap::Target& target, const GxGwrParams& params) {
  const StoredRows rows[] = {{"grad", params.grad, params.grad_type},
                             {"delta", params.delta, RowType::kFloat32},
                             {"d_dv", params.d_dv, RowType::kFloat32}};
  const int32_t columns = piece_columns(params.hd, widest_piece({params.grad_type}), rows);

  StepGeometry chosen;
  chosen.entry = entry_name(kName, {params.grad_type}, columns);
  chosen.config = token_config(kGwrShape, int64_t{params.num_parallel} * params.chunk_size,
                               params.hd, kGwrShape.staged_entries(params.num_writes), target);
  chosen.alignments = piece_alignments(rows, columns);
  return chosen;
}

}  // namespace

constexpr StepKernel kGxGwr{kName, kRows, gx_gwr_info, step_geometry<GxGwrParams, geometry>};

const plancap::KernelInfo& gx_gwr_info() {
  static constexpr plancap::KernelInfo info =
      step_kernel_info<GxGwrParams, kRows, kGxGwr, gx_gwr_host>();
  return info;
}

}  // namespace sdm
