#include "kernels/layer/decode_step/decode_step_geometry.h"

#include <algorithm>

#include "kernels/common/launch/row_checks.h"
#include "kernels/layer/decode_step/decode_step_shape.h"
#include "plancap/base/error.h"

namespace sdm {
namespace {

constexpr int32_t kColumns[] = {128, 64, 32};  // the widest first
constexpr int64_t kMostBlocksY = 65535;
constexpr int32_t kBlocksPerSm = 2;
constexpr uint32_t kMostShared = 96 * 1024;  // two blocks of an SM, where a choice is left

RowType held_rows(const DecodeStepParams& params, bool pieces) {
  return pieces ? params.bank_type : kAnyRow;
}

int64_t slices(const DecodeStepParams& params, int32_t columns) {
  return (int64_t{params.hd} + columns - 1) / columns;
}

}  // namespace

std::span<const int32_t> decode_step_columns(bool pieces) {
  const std::span<const int32_t> all = kColumns;
  return pieces ? all : all.last(1);
}

StepGeometry decode_step_geometry(const DecodeStepParams& params, bool pieces, int32_t columns) {
  const int64_t rows = std::min<int64_t>(params.num_parallel, kMostBlocksY);
  const RowType held = held_rows(params, pieces);
  StepGeometry geometry;
  geometry.entry =
      cat("decode_step_", pieces ? row_type_name(params.bank_type) : "any", "_s", columns);
  geometry.config.grid = {static_cast<uint32_t>(slices(params, columns)),
                          static_cast<uint32_t>(rows),
                          static_cast<uint32_t>((params.num_parallel + rows - 1) / rows)};
  geometry.config.block.x = kDecodeThreads;
  geometry.config.shared_bytes =
      decode_shared(held, columns, params.num_writes, params.num_reads).total;
  if (pieces) geometry.alignments = {{"bank", 16}};
  return geometry;
}

StepGeometry decode_step_geometry(const plancap::Target& target, const DecodeStepParams& params) {
  const bool aligned = reinterpret_cast<uintptr_t>(params.bank) % 16 == 0;
  const bool pieces = params.hd % decode_piece(params.bank_type) == 0 && aligned;
  const std::span<const int32_t> widths = decode_step_columns(pieces);
  const int64_t wanted = int64_t{kBlocksPerSm} * target.sm_count;
  const uint32_t most = std::min(kMostShared, target.shared_bytes_optin);
  for (const int32_t columns : widths.first(widths.size() - 1)) {
    if (params.hd <= columns / 2) continue;
    StepGeometry geometry = decode_step_geometry(params, pieces, columns);
    const int64_t blocks = slices(params, columns) * params.num_parallel;
    if (blocks >= wanted && geometry.config.shared_bytes <= most) return geometry;
  }
  return decode_step_geometry(params, pieces, widths.back());
}

}  // namespace sdm
