// Enough of CUDA C++ to compile the step kernels for the CPU: every thread of a block is a fiber,
// warp collectives and block barriers are where fibers wait for each other. Included before
// everything else (g++ -include); kernels/common/ptx/ptx.cuh beside it takes the real one's place.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#define __launch_bounds__(...)

struct uint3 {
  uint32_t x, y, z;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulation {

struct Position {
  uint3 thread, block, block_size, grid_size;
};
const Position& position();

// Every lane of the warp gives one word and gets the words of all 32. `what` names the collective:
// lanes of a warp that meet in different ones are an error.
const uint32_t* exchange(uint32_t word, const char* what);
void block_barrier();
bool block_any(bool vote);

}  // namespace emulation

#define threadIdx (::emulation::position().thread)
#define blockIdx (::emulation::position().block)
#define blockDim (::emulation::position().block_size)
#define gridDim (::emulation::position().grid_size)

using std::max;
using std::min;

inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (by & 31));
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
inline int __popc(uint32_t bits) { return std::popcount(bits); }
inline int __clz(uint32_t bits) { return std::countl_zero(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }

// Threads are fibers of one thread: nothing comes between.
inline uint32_t atomicAdd(uint32_t* to, uint32_t value) {
  const uint32_t before = *to;
  *to = before + value;
  return before;
}

inline void __syncthreads() { ::emulation::block_barrier(); }
inline int __syncthreads_or(int vote) { return ::emulation::block_any(vote != 0) ? 1 : 0; }
inline void __syncwarp() { ::emulation::exchange(0, "__syncwarp"); }

namespace emulation {

// A value of one word or two, as lane `lane` gives it.
template <typename T>
T shuffled(T value, int lane, const char* what) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint32_t words[sizeof(T) / 4];
  std::memcpy(words, &value, sizeof(T));
  for (uint32_t& word : words) word = exchange(word, what)[lane];
  std::memcpy(&value, words, sizeof(T));
  return value;
}

}  // namespace emulation

template <typename T>
T __shfl_sync(uint32_t, T value, int lane) {
  return ::emulation::shuffled(value, lane, "__shfl_sync");
}
template <typename T>
T __shfl_xor_sync(uint32_t, T value, int distance) {
  const int lane = static_cast<int>(threadIdx.x % 32) ^ distance;
  return ::emulation::shuffled(value, lane, "__shfl_xor_sync");
}
template <typename T>
T __shfl_up_sync(uint32_t, T value, int distance) {
  const int lane = static_cast<int>(threadIdx.x % 32) - distance;
  return ::emulation::shuffled(value, lane < 0 ? lane + distance : lane, "__shfl_up_sync");
}
inline uint32_t __ballot_sync(uint32_t, bool vote) {
  const uint32_t* votes = ::emulation::exchange(vote, "__ballot_sync");
  uint32_t ballot = 0;
  for (int lane = 0; lane < 32; ++lane) ballot |= votes[lane] << lane;
  return ballot;
}
inline uint32_t __reduce_add_sync(uint32_t, uint32_t value) {
  const uint32_t* values = ::emulation::exchange(value, "__reduce_add_sync");
  uint32_t sum = 0;
  for (int lane = 0; lane < 32; ++lane) sum += values[lane];
  return sum;
}
inline bool __any_sync(uint32_t mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
