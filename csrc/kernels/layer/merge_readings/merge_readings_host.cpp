#include <algorithm>

#include "kernels/common/host/host_parallel.h"
#include "kernels/common/host/multiversion.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/layer/merge_readings/merge_readings.h"
#include "kernels/layer/merge_readings/merge_readings_math.h"

namespace sdm {
namespace {

SDM_HD MergePiece load_piece(const MergeReadingsParams& params, int64_t row, int32_t column) {
  MergePiece piece = {};
  for (int32_t i = 0; i < kLaneColumns && column + i < params.hd; ++i) {
    const float reading = load_value(params.readings, params.readings_type, row + column + i);
    piece.value[i] = rounded_to(params.merged_type, reading);
  }
  return piece;
}

SDM_HD float tree(float (&lanes)[kLanes]) {
  for (int32_t count = kLanes / 2; count > 0; count /= 2) {
    for (int32_t i = 0; i < count; ++i) lanes[i] = plus(lanes[2 * i], lanes[2 * i + 1]);
  }
  return lanes[0];
}

// The row's sum of `of_lane(piece, columns)`.
template <typename OfLane>
SDM_HD float row_sum(const MergeReadingsParams& params, int64_t row, const OfLane& of_lane) {
  float sum = 0.0f;
  for (int32_t first = 0; first < params.hd; first += kMergeColumns) {
    float lanes[kLanes];
    for (int32_t lane = 0; lane < kLanes; ++lane) {
      const int32_t column = first + lane * kLaneColumns;
      lanes[lane] = of_lane(load_piece(params, row, column), params.hd - column);
    }
    sum = first == 0 ? tree(lanes) : plus(sum, tree(lanes));
  }
  return sum;
}

SDM_MULTIVERSION
void one_row(const MergeReadingsParams& params, uint32_t row) {
  const MergeRow at = merge_row(params, row);
  const bool norm = params.norm_weight != nullptr;
  float mean = 0.0f, scale = 1.0f;
  if (norm) {
    mean = divided(
        row_sum(params, at.reading,
                [](const MergePiece& piece, int32_t) SDM_INLINE_LAMBDA { return lane_sum(piece); }),
        static_cast<float>(params.hd));
    scale = norm_scale(
        params, row_sum(params, at.reading,
                        [&](const MergePiece& piece, int32_t columns)
                            SDM_INLINE_LAMBDA { return lane_squares(piece, columns, mean); }));
  }
  for (int32_t c = 0; c < params.hd; ++c) {
    const float reading = load_value(params.readings, params.readings_type, at.reading + c);
    float value = rounded_to(params.merged_type, reading);
    if (norm) {
      value = normalized(params, value, mean, scale,
                         load_value(params.norm_weight, params.norm_type, c),
                         load_value(params.norm_bias, params.norm_type, c));
    }
    if (params.gate != nullptr) {
      value = gated(params, value, load_value(params.gate, params.gate_type, at.gate + c));
    }
    store_value(params.merged, params.merged_type, at.merged + c, value);
  }
}

}  // namespace

void merge_readings_host(const MergeReadingsParams& params) {
  const int64_t rows = int64_t{params.num_batches} * params.num_tokens * params.num_heads;
#pragma omp parallel if (rows * params.hd > kSerialElements)
  {
    const FloatMode mode;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows; ++row) one_row(params, static_cast<uint32_t>(row));
  }
}

}  // namespace sdm
