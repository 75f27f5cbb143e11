// Gather of the gradient rows of one step's written slots: d_dv and dpd.
#pragma once
#include <cstdint>

#include "kernels/common/rows/row_types.h"

namespace sdm {

struct GxGwrParams {
  const void* grad;      // [rows, hd] bf16 or f32
  const float* delta;    // [N*C, hd]
  const float* pd;       // [N*C, W]
  const int32_t* slots;  // [N*C, W] absolute bank rows; -1: a row of zeros
  float* d_dv;           // [N*C, hd] out
  float* dpd;            // [num_slices, N*C*W] out
  int64_t num_tokens;    // T: token step*C + t is padding from here on
  int64_t plane_stride;  // elements between two slices' planes of dpd
  int32_t step;
  int32_t num_parallel;
  int32_t chunk_size;
  int32_t num_writes;
  int32_t hd;
  RowType grad_type;
};

}  // namespace sdm
