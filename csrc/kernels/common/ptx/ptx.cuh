// The few instructions that C++ does not spell, and the loads whose caching matters. Kernels use
// these alone, so that tests can put a CPU emulation in this file's place.
#pragma once
#include <cstdint>

namespace sdm::ptx {

// The block's dynamic shared memory, aligned to 16 bytes.
__device__ __forceinline__ char* dynamic_shared() {
  extern __shared__ __align__(16) char sdm_dynamic_shared[];
  return sdm_dynamic_shared;
}

// Asynchronous global -> shared copies. 16 bytes go past L1 (.cg); smaller ones have only .ca.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
}

// 16 bytes through L1, for what many threads of an SM read.
__device__ __forceinline__ void copy_async_cached(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

// Copies since the last commit become one group; groups of a thread complete in order.
__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's groups are unfinished.
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// A load from L2: never served by a line that this SM cached before another SM wrote it. The
// volatile and the clobber keep it behind pdl_wait().
__device__ __forceinline__ uint4 load_l2(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ uint2 load_l2(const uint2* from) {
  uint2 v;
  asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_l2(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ uint16_t load_l2(const uint16_t* from) {
  uint16_t v;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ uint8_t load_l2(const uint8_t* from) {
  uint32_t v;
  asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return static_cast<uint8_t>(v);
}

// Asks for 32 bytes to be in L2 soon, wherever in them the address is.
__device__ __forceinline__ void prefetch_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// A load that the compiler leaves where it is written: ahead of what does not need it.
__device__ __forceinline__ int32_t load_now(const int32_t* from) {
  int32_t v;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}

__device__ __forceinline__ uint4 load_now(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ float load_now(const float* from) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
  return v;
}

// The same bits, of which the compiler knows nothing: what follows from them is not kept from
// before.
__device__ __forceinline__ uint32_t opaque(uint32_t bits) {
  asm volatile("" : "+r"(bits));
  return bits;
}

// The lanes that have this bit as this lane has it. All 32 ask. In C++ the compiler tests the bit
// twice.
__device__ __forceinline__ uint32_t same_bit(uint32_t word, uint32_t bit) {
  uint32_t lanes;
  asm volatile(
      "{\n"
      "  .reg .pred set;\n"
      "  .reg .b32 found;\n"
      "  and.b32 found, %1, %2;\n"
      "  setp.ne.u32 set, found, 0;\n"
      "  vote.sync.ballot.b32 %0, set, 0xffffffff;\n"
      "  @!set not.b32 %0, %0;\n"
      "}"
      : "=r"(lanes)
      : "r"(word), "r"(bit));
  return lanes;
}

// Two floats to bfloat16, nearest even, the first in the low half; float_to_bf16's bits, but for
// the payload of a NaN.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// The larger of two bfloat16 in both halves of a word; beside a NaN, the number.
__device__ __forceinline__ uint32_t max_bf16x2(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

}  // namespace sdm::ptx
