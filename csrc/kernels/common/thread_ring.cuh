// A ring in shared memory in which every thread has its own place in each slot: what it puts there
// only it reads, so no barrier is needed, only copy_wait().
#pragma once
#include <cstdint>

namespace sdm {

template <class Raw, int kThreads>
class ThreadRing {
 public:
  __device__ __forceinline__ explicit ThreadRing(char* shared)
      : own_(reinterpret_cast<Raw*>(shared) + threadIdx.x) {}
  __device__ __forceinline__ Raw* operator[](int32_t slot) const { return own_ + slot * kThreads; }

 private:
  Raw* own_;
};

}  // namespace sdm
