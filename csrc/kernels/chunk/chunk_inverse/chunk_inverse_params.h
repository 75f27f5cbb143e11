// X of every chunk and what is made of it alone (docs/step_chain.md, section 2), before the chain.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

struct ChunkInverseParams {
  const float* system;     // [N, C, C]: what lies below the diagonal
  const float* qk;         // [N, C, C]: what lies on and below it
  const float* beta_rows;  // [N*C]
  float* x;                // [N, C, C], or null
  float* qx;               // [N, C, C]; null if x is
  float* scaled;           // [N, C, C]: beta_j X[i, j] at [j, i]
  int32_t num_chunks, chunk_size;
  int32_t wide;  // 1: C is a multiple of 4, and system and qk are aligned to 16 bytes
};

}  // namespace sdm
