// How merge_readings is launched on a device.
#pragma once
#include "kernels/common/launch/step_geometry.h"
#include "kernels/layer/merge_readings/merge_readings_params.h"

namespace sdm {

StepGeometry merge_readings_geometry(const plancap::Target& target,
                                     const MergeReadingsParams& params);

// Dynamic shared memory of a block with so many rows: each slice's sum, twice.
inline uint32_t merge_shared_bytes(const MergeReadingsParams& params, uint32_t block_rows) {
  const auto slices = static_cast<uint32_t>(num_slices(params.hd));
  return slices == 1 ? 0 : 2 * block_rows * slices * static_cast<uint32_t>(sizeof(float));
}

}  // namespace sdm
