#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/common/launch/row_checks.h"
#include "kernels/common/launch/step_kernel.h"
#include "kernels/layer/decode_step/decode_step.h"
#include "kernels/layer/decode_step/decode_step_geometry.h"
#include "kernels/layer/decode_step/decode_step_rows.h"
#include "kernels/layer/decode_step/decode_step_shape.h"
#include "plancap/base/error.h"
#include "plancap/format/param_view.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::ParamView;
using plancap::volume;

constexpr int64_t kMostInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostStride = int64_t{1} << 48;
constexpr uint64_t kMostElements = uint64_t{1} << 60;  // beyond any memory; sums of them fit

void check_numbers(const ParamView& view, const DecodeStepParams& params) {
  check_plain_type(view, "bank_type", params.bank_type);
  check_plain_type(view, "v_type", params.v_type);
  view.range("num_parallel", params.num_parallel, 1, kMostInt32);
  view.range("num_heads", params.num_heads, 1, params.num_parallel);
  view.expect(params.num_parallel % params.num_heads == 0, "num_heads",
              cat("a divisor of ", params.num_parallel), cat(params.num_heads));
  view.range("num_slots", params.num_slots, 1, kMostInt32 / params.num_parallel);
  view.range("num_tokens", params.num_tokens, 1, kDecodeMostTokens);
  view.range("num_writes", params.num_writes, 1, 256);
  view.range("num_reads", params.num_reads, 1, 256);
  view.expect(params.num_gates == 1 || params.num_gates == params.num_writes, "num_gates",
              cat("1 or ", params.num_writes), cat(params.num_gates));
  view.range("key_weighted", params.key_weighted, 0, params.num_gates == 1 ? 1 : 0);
  view.range("hd", params.hd, 1, 1 << 20);
  view.range("reserved", params.reserved, 0, 0);
}

// Rows [B, T, H, hd] at their strides, from the operand's start on.
void check_head_rows(const ParamView& view, const DecodeStepParams& params, const char* field,
                     Access access, RowType type, const HeadStrides& strides) {
  uint64_t elements = static_cast<uint64_t>(params.hd);
  const auto add = [&](const char* dimension, int32_t count, int64_t stride) {
    view.range(cat(field, dimension).c_str(), stride, 0, kMostStride);
    elements += std::min(volume({count - 1, stride}), kMostElements);
  };
  add("_batch", params.num_parallel / params.num_heads, strides.batch);
  add("_token", params.num_tokens, strides.token);
  add("_head", params.num_heads, strides.head);
  const uint32_t bytes = dtype_bytes(row_dtype(type));
  view.dtype(field, row_dtype(type));
  view.reach_bytes(field, access, bytes, elements * bytes);
}

void check_operands(const ParamView& view, const DecodeStepParams& params) {
  const int64_t tokens = int64_t{params.num_parallel} * params.num_tokens;
  const auto entries = [&](int32_t count) { return volume({tokens, count}); };
  const int64_t rows = int64_t{params.num_parallel} * params.num_slots;
  const uint32_t bytes = dtype_bytes(row_dtype(params.bank_type));
  view.dtype("bank", row_dtype(params.bank_type));
  view.reach_bytes("bank", Access::kReadWrite, bytes, volume({rows, params.hd, bytes}));
  view.reach<int32_t>("k_idx", Access::kRead, entries(params.num_writes));
  view.reach<float>("k_val", Access::kRead, entries(params.num_writes));
  view.reach<float>("beta", Access::kRead, entries(1));
  view.reach<float>("g", Access::kRead, entries(params.num_gates));
  view.reach<int32_t>("q_idx", Access::kRead, entries(params.num_reads));
  view.reach<float>("q_val", Access::kRead, entries(params.num_reads));
  check_head_rows(view, params, "v", Access::kRead, params.v_type, v_strides(params));
  check_head_rows(view, params, "readings", Access::kWrite, params.bank_type,
                  readings_strides(params));
}

// The launch is one that these sizes may have: any slice that there is a device function for.
void check_geometry(const ParamView& view, const DecodeStepParams& params) {
  const plancap::LaunchConfig config = view.config();
  for (const bool pieces : {true, false}) {
    for (const int32_t columns : decode_step_columns(pieces)) {
      const StepGeometry known = decode_step_geometry(params, pieces, columns);
      if (known.entry != view.entry()) continue;
      const bool fits = config.grid == known.config.grid && config.block == known.config.block &&
                        config.cluster == known.config.cluster &&
                        config.shared_bytes == known.config.shared_bytes;
      view.expect(fits, "hd", cat("the launch geometry of ", known.entry), "another");
      if (!pieces) return;
      view.expect(params.hd % decode_piece(params.bank_type) == 0, "hd",
                  cat("a multiple of ", decode_piece(params.bank_type), " for ", known.entry),
                  cat(params.hd));
      view.reach_bytes("bank", Access::kReadWrite, 16, 0);
      return;
    }
  }
  view.expect(false, "bank_type", "a device function for such rows", view.entry());
}

}  // namespace

void check_decode_step_plan(const ParamView& view) {
  DecodeStepParams params;  // the block in a plan may be less aligned than the struct
  std::memcpy(&params, view.block().data(), sizeof(params));
  check_numbers(view, params);
  check_operands(view, params);
  if (view.backend() == plancap::Backend::kCuda) check_geometry(view, params);
}

}  // namespace sdm
