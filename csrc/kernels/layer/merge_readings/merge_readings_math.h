// The arithmetic of one reading, for the host twin and the device kernel.
//
// A reading is rounded to merged's dtype, as the layer hands it to the norm. The norm computes in
// float32, and its result has the dtype of its weights; the sigmoid has the gate's. Their product
// is rounded to float32, then to merged's dtype.
//
// A row's sums: by slices of 128 columns, of which lane l adds columns 4l .. 4l+3 in order, then a
// balanced tree over the lanes (neighbours first); the slices' sums are added in order. Columns
// that do not exist are +0.
#pragma once
#include "kernels/common/math/elementary.h"
#include "kernels/common/rows/typed_values.h"
#include "kernels/layer/merge_readings/merge_readings_params.h"

namespace sdm {

inline constexpr int32_t kMergeColumns = kLanes * kLaneColumns;  // of a slice

// A lane's four columns.
struct MergePiece {
  float value[kLaneColumns];
};

// Where a row (a token's head) starts.
struct MergeRow {
  int64_t reading, gate, merged;
};

SDM_HD MergeRow merge_row(const MergeReadingsParams& params, uint32_t row) {
  const auto heads = static_cast<uint32_t>(params.num_heads);
  const auto tokens = static_cast<uint32_t>(params.num_tokens);
  const uint32_t flat = row / heads, batch = flat / tokens;
  const int64_t head = row - flat * heads, token = flat - batch * tokens;
  return {batch * params.readings_batch_stride + token * params.readings_token_stride +
              head * params.readings_head_stride,
          batch * params.gate_batch_stride + token * params.gate_token_stride + head * params.hd,
          int64_t{row} * params.hd};
}

SDM_HD float rounded_to(RowType type, float value) {
  return type == RowType::kFloat32 ? value : bf16_to_float(float_to_bf16(value));
}

SDM_HD float lane_sum(const MergePiece& piece) {
  return plus(plus(plus(piece.value[0], piece.value[1]), piece.value[2]), piece.value[3]);
}

// The squares' sum of what is left of `columns` columns without the mean.
SDM_HD float lane_squares(const MergePiece& piece, int32_t columns, float mean) {
  float left[kLaneColumns];
  for (int32_t i = 0; i < kLaneColumns; ++i) {
    left[i] = i < columns ? plus(piece.value[i], -mean) : 0.0f;
  }
  return lane_dot(left[0], left[1], left[2], left[3], left[0], left[1], left[2], left[3]);
}

// What a row's columns are multiplied by, from the squares' sum of the row.
SDM_HD float norm_scale(const MergeReadingsParams& params, float squares) {
  const float variance = divided(squares, static_cast<float>(params.hd));
  return divided(1.0f, square_root(plus(variance, params.eps)));
}

SDM_HD float normalized(const MergeReadingsParams& params, float reading, float mean, float scale,
                        float weight, float bias) {
  const float value = fused(times(plus(reading, -mean), scale), weight, bias);
  return rounded_to(params.norm_type, value);
}

SDM_HD float gated(const MergeReadingsParams& params, float value, float gate) {
  return times(value, rounded_to(params.gate_type, sigmoid(gate)));
}

}  // namespace sdm
