// A ring in shared memory in which every thread has its own part of each stage: what it puts there
// only it reads, so no barrier is needed, only copy_wait().
#pragma once
#include <cstdint>

namespace sdm {

template <class Raw, int kThreads>
class ThreadRing {
 public:
  __device__ __forceinline__ explicit ThreadRing(char* shared)
      : own_(reinterpret_cast<Raw*>(shared) + threadIdx.x) {}
  __device__ __forceinline__ Raw* operator[](int32_t stage) const {
    return own_ + stage * kThreads;
  }

 private:
  Raw* own_;
};

// The same for pieces of 16 or more bytes, each 16 in a plane of their own: a thread's neighbours
// in a bank are then the next threads, and no access of a warp meets a bank twice at once.
template <class Raw, int kThreads, int kDepth>
class PlanesRing {
 public:
  static constexpr int kPlaneBytes = 16 * kThreads * kDepth;

  __device__ __forceinline__ explicit PlanesRing(char* shared) : own_(shared + 16 * threadIdx.x) {}
  // Where its first 16 bytes are; the others are kPlaneBytes behind each other.
  __device__ __forceinline__ char* operator[](int32_t stage) const {
    return own_ + stage * (16 * kThreads);
  }
  __device__ __forceinline__ Raw read(int32_t stage) const {
    Raw raw;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Raw)) / 16; ++i) {
      const uint4 v = *reinterpret_cast<const uint4*>((*this)[stage] + i * kPlaneBytes);
      raw.word[4 * i] = v.x, raw.word[4 * i + 1] = v.y;
      raw.word[4 * i + 2] = v.z, raw.word[4 * i + 3] = v.w;
    }
    return raw;
  }

 private:
  char* own_;
};

}  // namespace sdm
