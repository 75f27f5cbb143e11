// plane_reduce's block size, as its kernel and its host geometry both need it.
#pragma once
#include <cstdint>

namespace sdm {

inline constexpr int32_t kReduceThreads = 256;

}  // namespace sdm
