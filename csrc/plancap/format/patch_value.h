// What a patch says of a step.
#pragma once
#include <cstdint>

namespace sdm::plancap {

// base + ti * stride, of which decoding knows that it fits 64 bits. ti * stride alone need not, so
// the sum is made where wrapping is defined.
constexpr int64_t patch_line(int64_t base, int64_t stride, int64_t ti) {
  return static_cast<int64_t>(static_cast<uint64_t>(base) +
                              static_cast<uint64_t>(ti) * static_cast<uint64_t>(stride));
}

}  // namespace sdm::plancap
