// chunk_prepare's largest block, as its kernel and its host geometry both need it.
#pragma once
#include <cstdint>

namespace sdm {

inline constexpr int32_t kPrepareThreads = 1024;

}  // namespace sdm
