#include "kernels/common/launch/plan_checks.h"
#include "kernels/step/gx_gds/gx_gds.h"

namespace sdm {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

void check_gx_gds_plan(const ParamView& view) {
  const auto& params = view.get<GxGdsParams>();
  check_step_fields(view, params);
  view.range("num_reads", params.num_reads, 1, 256);
  view.range("reserved", params.reserved, 0, 0);
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int64_t entries = tokens * params.num_reads, hd = params.hd, step = params.step;
  const uint64_t grad_rows =
      check_row_operand(view, "grad", "grad_type", params.grad_type, params.hd, Access::kReadWrite);
  check_same_rows(
      view, grad_rows,
      check_row_operand(view, "bank", "bank_type", params.bank_type, params.hd, Access::kRead));
  view.share<float>("gy", Access::kRead, volume({tokens, hd}), step);
  view.share<Record>("records", Access::kRead, static_cast<uint64_t>(entries), step);
  check_plane_operand(view, "dq", params.plane_stride, params.hd, entries, step);
}

}  // namespace sdm
