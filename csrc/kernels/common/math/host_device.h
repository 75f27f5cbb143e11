// Marks functions that the host twin and the device kernel share.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define SDM_HD __host__ __device__ __forceinline__
#else
#define SDM_HD inline __attribute__((always_inline))
#endif

// Ahead of a loop that a device should not unroll: one of few rounds, in a kernel of few
// microseconds, where code that is fetched costs more than code that runs.
#if defined(__CUDACC__)
#define SDM_ROLLED _Pragma("unroll 1")
#else
#define SDM_ROLLED
#endif

// Behind a lambda's parameters: it is compiled for the instruction set of its caller, as SDM_HD is.
#define SDM_INLINE_LAMBDA __attribute__((always_inline))
