#include "kernels/common/launch/plan_checks.h"
#include "kernels/step/fx_read/fx_read.h"

namespace sdm {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

void check_fx_read_plan(const ParamView& view) {
  const auto& params = view.get<FxReadParams>();
  check_step_fields(view, params);
  view.range("num_writes", params.num_writes, 1, 256);
  view.range("num_reads", params.num_reads, 1, 256);
  view.range("reserved", params.reserved, 0, 0);
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int64_t hd = params.hd, step = params.step;
  check_row_operand(view, "bank", "bank_type", params.bank_type, params.hd, Access::kRead);
  check_step_rows(view, "v", params.bank_type, params.hd, Access::kRead, tokens, step);
  const int64_t entries = int64_t{params.num_writes} + params.num_reads;
  view.share<RowWeight>("row_weights", Access::kRead, volume({tokens, entries}), step);
  view.share<float>("residual", Access::kWrite, volume({tokens, hd}), step);
  view.share<float>("reading", Access::kWrite, volume({tokens, hd}), step);
}

}  // namespace sdm
