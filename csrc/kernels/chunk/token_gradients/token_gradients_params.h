// After the chain: dv = beta * d_u and dbeta = <d_u, innovation>, in the caller's layout.
#pragma once
#include "kernels/common/math/host_device.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

struct TokenGradientsParams {
  const float* d_u;         // [N*C, hd]
  const float* innovation;  // [N*C, hd]
  const float* beta_rows;   // [N*C]
  void* dv;                 // [P, T, hd]; with heads > 1 [P / heads, T, heads, hd]
  void* dbeta;              // [P, T]
  int64_t num_tokens;
  int32_t first_step;  // of the staged chunks
  int32_t num_chunks, num_parallel, chunk_size;
  int32_t hd;
  int32_t heads;  // of dv that lie beside each other; num_parallel is a multiple
  RowType dv_type, dbeta_type;
  int32_t wide;  // 1: hd is a multiple of 4, and every row is aligned to four of its elements
};

}  // namespace sdm
