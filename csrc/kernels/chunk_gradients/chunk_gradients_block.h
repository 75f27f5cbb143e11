// chunk_gradients' largest block, as its kernel and its host geometry both need it.
#pragma once
#include <cstdint>

namespace sdm {

inline constexpr int32_t kGradientThreads = 512;

}  // namespace sdm
