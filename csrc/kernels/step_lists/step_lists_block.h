// step_lists' largest block, as its kernel and its host geometry both need it.
#pragma once
#include <cstdint>

namespace sdm {

inline constexpr int32_t kListThreads = 512;

}  // namespace sdm
