#include "kernels/common/host/host_rows.h"
#include "kernels/common/launch/plan_checks.h"
#include "kernels/step/gx_pa2/gx_pa2.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

// One snapshot row, and one scale if they are quantized, per entry of a step.
void check_snapshots(const ParamView& view, const GxPa2Params& params, int64_t entries) {
  view.range("snap_type", int64_t{static_cast<int32_t>(params.snap_type)},
             int64_t{static_cast<int32_t>(RowType::kFloat32)},
             int64_t{static_cast<int32_t>(RowType::kInt4)});
  const bool dense = view.has("bpre");
  view.range("snap_step_rows", params.snap_step_rows, dense ? 0 : entries,
             dense ? 0 : std::numeric_limits<int64_t>::max());
  const int64_t step_rows = dense ? entries : params.snap_step_rows;
  const int64_t row = row_bytes(params.snap_type, params.hd);
  const bool quantized = params.snap_type > RowType::kBFloat16;
  view.expect(params.snap_type != RowType::kInt4 || params.hd % 2 == 0, "hd", "an even number",
              std::to_string(params.hd));
  const auto element = quantized ? 1 : static_cast<uint32_t>(row_bytes(params.snap_type, 1));
  view.share_bytes("snap", Access::kRead, element, volume({entries, row}), volume({step_rows, row}),
                   params.step);
  view.expect(quantized == view.has("scales"), "scales",
              quantized ? "an operand (snapshots are quantized)" : "none", "the other");
  if (quantized) {
    view.share_bytes("scales", Access::kRead, alignof(float), volume({entries, sizeof(float)}),
                     volume({step_rows, sizeof(float)}), params.step);
  }
}

}  // namespace

void check_gx_pa2_plan(const ParamView& view) {
  const auto& params = view.get<GxPa2Params>();
  check_step_fields(view, params);
  view.range("num_writes", params.num_writes, 1, 256);
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int64_t entries = tokens * params.num_writes, step = params.step;
  const uint64_t grad_rows =
      check_row_operand(view, "grad", "grad_type", params.grad_type, params.hd, Access::kReadWrite);
  check_same_rows(
      view, grad_rows,
      check_row_operand(view, "bank", "bank_type", params.bank_type, params.hd, Access::kWrite));
  check_snapshots(view, params, entries);
  view.share<float>("d_u", Access::kRead, volume({tokens, params.hd}), step);
  view.share<float>("beta", Access::kRead, static_cast<uint64_t>(tokens), step);
  view.share<Record>("records", Access::kRead, static_cast<uint64_t>(entries), step);
  if (view.has("bpre")) {
    const int64_t blocks = (int64_t{params.chunk_size} * params.num_writes + 31) / 32 + 1;
    view.share<int32_t>("bpre", Access::kRead, volume({params.num_parallel, blocks}), step);
  }
  check_plane_operand(view, "out_eff", params.plane_stride, params.hd, entries, step);
  check_plane_operand(view, "out_g", params.plane_stride, params.hd, entries, step);
}

}  // namespace sdm
