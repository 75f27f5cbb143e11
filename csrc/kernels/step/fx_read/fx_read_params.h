// Residuals and readings of one step's tokens, from the bank before the step.
#pragma once
#include <cstdint>

#include "kernels/common/records/row_weights.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

struct FxReadParams {
  const void* bank;  // [rows, hd]
  const void* v;     // [N*C, hd] of the bank's type
  // Of an entry without a slot {-1, -0}: a row of zeros.
  const RowWeight*
      row_weights;     // [N*C, W+R]: {slot, -keff} of the writes, {slot, qeff} of the reads
  float* residual;     // [N*C, hd] out
  float* reading;      // [N*C, hd] out
  int64_t num_tokens;  // T: token step*C + t is padding from here on
  int32_t step;
  int32_t num_parallel;
  int32_t chunk_size;
  int32_t num_writes;
  int32_t num_reads;
  int32_t hd;
  RowType bank_type;
  int32_t reserved;
};

}  // namespace sdm
