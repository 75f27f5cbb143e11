// Marks functions that the host twin and the device kernel share.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define SDM_HD __host__ __device__ __forceinline__
#else
#define SDM_HD inline __attribute__((always_inline))
#endif
