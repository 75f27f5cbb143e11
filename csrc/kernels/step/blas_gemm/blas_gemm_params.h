// d_u[p] += x[p]^T d_dv[p] for the P chunks of one step, by the BLAS; the pointers are the step's.
#pragma once
#include <cstdint>

namespace sdm {

struct BlasGemmParams {
  float* d_u;         // [P, C, hd]
  const float* x;     // [P, C, C]
  const float* d_dv;  // [P, C, hd]
  int32_t num_parallel;
  int32_t chunk_size;
  int32_t hd;
  int32_t reserved;
};

}  // namespace sdm
