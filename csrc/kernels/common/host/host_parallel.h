// When a host twin's work is worth more than one thread.
#pragma once
#include <cstdint>

namespace sdm {

// Starting and joining threads takes as long as this many row elements or multiply-adds: below it
// one thread is faster. The bits are the same.
inline constexpr int64_t kSerialElements = int64_t{1} << 16;
inline constexpr int64_t kSerialMultiplyAdds = int64_t{1} << 19;

}  // namespace sdm
