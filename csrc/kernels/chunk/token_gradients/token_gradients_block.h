// token_gradients' block, as its kernel and its host geometry both need it: a warp is a token.
#pragma once
#include <cstdint>

namespace sdm {

inline constexpr int32_t kTokenThreads = 256;

}  // namespace sdm
