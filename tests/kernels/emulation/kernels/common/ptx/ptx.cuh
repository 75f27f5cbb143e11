// The CPU's stand-in for kernels/common/ptx/ptx.cuh. Asynchronous copies happen as late as the
// kernel's waits allow: data that was not waited for is not there.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/common/math/bf16.h"

namespace emulation {

char* dynamic_shared();
void copy_later(void* to, const void* from, size_t bytes);
void commit_copies();
void finish_copies(size_t pending_groups);
void check_alignment(const void* address, size_t bytes);

}  // namespace emulation

namespace sdm::ptx {

inline char* dynamic_shared() { return ::emulation::dynamic_shared(); }

template <int kBytes>
void copy_async(void* shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  ::emulation::check_alignment(shared, kBytes);
  ::emulation::check_alignment(global, kBytes);
  ::emulation::copy_later(shared, global, kBytes);
}
inline void copy_async_cached(void* shared, const void* global) { copy_async<16>(shared, global); }
inline void copy_commit() { ::emulation::commit_copies(); }
template <int kPending>
void copy_wait() {
  ::emulation::finish_copies(kPending);
}

template <typename T>
T load_l2(const T* from) {
  ::emulation::check_alignment(from, sizeof(T));
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// What is asked for must be there.
inline void prefetch_l2(const void* from) {
  static volatile char sink;
  sink = *static_cast<const char*>(from);
}

inline int32_t load_now(const int32_t* from) { return *from; }
inline float load_now(const float* from) { return *from; }

inline uint4 load_now(const uint4* from) {
  ::emulation::check_alignment(from, 16);
  return *from;
}

inline uint32_t opaque(uint32_t bits) { return bits; }

inline uint32_t same_bit(uint32_t word, uint32_t bit) {
  const bool set = (word & bit) != 0;
  const uint32_t lanes = __ballot_sync(~0u, set);
  return set ? lanes : ~lanes;
}

inline uint32_t pack_bf16(float low, float high) {
  return float_to_bf16(low) | uint32_t{float_to_bf16(high)} << 16;
}

inline uint32_t max_bf16x2(uint32_t a, uint32_t b) {
  const auto larger = [](uint32_t x, uint32_t y) {
    const float first = bf16_to_float(static_cast<uint16_t>(x));
    const float second = bf16_to_float(static_cast<uint16_t>(y));
    return first > second || second != second ? x & 0xffffu : y & 0xffffu;
  };
  return larger(a, b) | larger(a >> 16, b >> 16) << 16;
}

}  // namespace sdm::ptx
