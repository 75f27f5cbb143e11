#include "kernels/common/launch/plan_checks.h"
#include "kernels/step/fx_write/fx_write.h"

namespace sdm {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

void check_fx_write_plan(const ParamView& view) {
  const auto& params = view.get<FxWriteParams>();
  check_step_fields(view, params);
  view.range("num_writes", params.num_writes, 1, 256);
  const int64_t tokens = int64_t{params.num_parallel} * params.chunk_size;
  const int64_t entries = tokens * params.num_writes, step = params.step;
  check_row_operand(view, "bank", "bank_type", params.bank_type, params.hd, Access::kReadWrite);
  view.share<float>("delta", Access::kRead, volume({tokens, params.hd}), step);
  view.share<Record>("updates", Access::kRead, static_cast<uint64_t>(entries), step);
  view.expect(view.has("snap") == view.has("bpre"), "bpre",
              view.has("snap") ? "an operand (a snapshot is kept)" : "none (no snapshot is kept)",
              "the other");
  if (!view.has("snap")) return;
  check_step_rows(view, "snap", params.bank_type, params.hd, Access::kWrite, entries, step);
  const int64_t blocks = (int64_t{params.chunk_size} * params.num_writes + 31) / 32 + 1;
  view.share<int32_t>("bpre", Access::kRead, volume({params.num_parallel, blocks}), step);
}

}  // namespace sdm
