// Marks functions that the host twin and the device kernel share.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define SDM_HD __host__ __device__ __forceinline__
#else
#define SDM_HD inline __attribute__((always_inline))
#endif

// Behind a lambda's parameters: it is compiled for the instruction set of its caller, as SDM_HD is.
#define SDM_INLINE_LAMBDA __attribute__((always_inline))
