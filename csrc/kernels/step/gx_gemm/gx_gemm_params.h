// d_u[n,i,c] += sum over j of x[n,j,i] * d_dv[n,j,c], for the P chunks n of one step.
#pragma once
#include <cstdint>

namespace sdm {

struct GxGemmParams {
  float* d_u;         // [N, C, hd]
  const float* x;     // [N, C, C]
  const float* d_dv;  // [N, C, hd]
  int32_t step;       // chunks step*P .. step*P + P - 1
  int32_t num_parallel;
  int32_t chunk_size;
  int32_t hd;
};

}  // namespace sdm
