#include "kernels/step/fx_read/fx_read.h"

#include "kernels/common/launch/token_grid.h"
#include "kernels/step/fx_read/fx_read_shape.h"

namespace sdm {
namespace {

constexpr const char* kName = "fx_read";

constexpr StepRow kRows[] = {
    SDM_OPERAND(FxReadParams, bank, "bank", kBankRows, kRead),
    SDM_OPERAND(FxReadParams, v, "v", kBankTokenRows, kRead).loaded_early(),
    SDM_OPERAND(FxReadParams, row_weights, "row_weights", kRowWeights, kRead)
        .measures()
        .loaded_early(),
    SDM_OPERAND(FxReadParams, residual, "residual", kTokenRows, kWrite),
    SDM_OPERAND(FxReadParams, reading, "reading", kTokenRows, kWrite),
    SDM_SIZE(FxReadParams, num_tokens),
    SDM_NUMBER(FxReadParams, step),
    SDM_SIZE(FxReadParams, num_parallel),
    SDM_SIZE(FxReadParams, chunk_size),
    SDM_SIZE(FxReadParams, num_writes),
    SDM_NUMBER(FxReadParams, num_reads),
    SDM_NUMBER(FxReadParams, hd),
    SDM_NUMBER(FxReadParams, bank_type),
    SDM_NUMBER(FxReadParams, reserved),
};

StepGeometry geometry(const plancap::Target& target, const FxReadParams& params) {
  const RowType bank = params.bank_type;
  const StoredRows rows[] = {{"bank", params.bank, bank},
                             {"v", params.v, bank},
                             {"residual", params.residual, RowType::kFloat32},
                             {"reading", params.reading, RowType::kFloat32}};
  const int32_t columns = piece_columns(params.hd, widest_piece({bank}), rows);
  const int32_t staged =
      kReadShape.staged_entries(params.num_writes) + kReadShape.staged_entries(params.num_reads);

  StepGeometry chosen;
  chosen.entry = entry_name(kName, {bank}, columns);
  chosen.config = token_config(kReadShape, int64_t{params.num_parallel} * params.chunk_size,
                               params.hd, staged, target);
  chosen.alignments = piece_alignments(rows, columns);
  return chosen;
}

}  // namespace

constexpr StepKernel kFxRead{kName, kRows, fx_read_info, step_geometry<FxReadParams, geometry>};

const plancap::KernelInfo& fx_read_info() {
  static constexpr plancap::KernelInfo info =
      step_kernel_info<FxReadParams, kRows, kFxRead, fx_read_host>();
  return info;
}

}  // namespace sdm
