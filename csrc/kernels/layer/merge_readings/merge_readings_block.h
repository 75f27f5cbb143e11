// merge_readings' block: x = lanes, y = the warps of a row, z = rows.
#pragma once
#include <cstdint>

namespace sdm {

inline constexpr int32_t kMergeWarps = 8;
inline constexpr int32_t kMergeThreads = 32 * kMergeWarps;

}  // namespace sdm
