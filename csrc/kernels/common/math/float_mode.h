// Denormals are kept and rounding is to nearest, whatever the calling thread has set.
#pragma once
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#include <cstdint>

namespace sdm {

// Holds the IEEE default mode on this thread while it lives. Every OpenMP thread of a host twin
// needs its own: the mode is per thread.
class FloatMode {
 public:
#if defined(__x86_64__)
  FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultMode); }
  ~FloatMode() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kDefaultMode =
      0x1f80;  // all exceptions masked, nearest, no FTZ, no DAZ
  unsigned saved_;
#elif defined(__aarch64__)
  FloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"(uint64_t{0}));
  }
  ~FloatMode() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }

 private:
  uint64_t saved_;
#else
#error "FloatMode: say how this processor keeps denormals"
#endif
 public:
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
};

}  // namespace sdm
