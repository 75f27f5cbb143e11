// After the forward's chain: the readings, with their chunks' own writes, in the caller's layout.
#pragma once
#include "kernels/common/math/host_device.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

struct ChunkReadingsParams {
  const float* reading;  // [N*C, hd], of the bank before the chunk
  const float* qk;       // [N, C, C]: what lies on and below the diagonal
  const float* delta;    // [N*C, hd]
  void* readings;        // [P, T, hd]; with heads > 1 [P / heads, T, heads, hd]
  int64_t num_tokens;
  int32_t first_step;  // of the staged chunks
  int32_t num_chunks, num_parallel, chunk_size;
  int32_t hd;
  int32_t heads;  // of readings that lie beside each other; num_parallel is a multiple
  RowType readings_type;
};

}  // namespace sdm
