// Read side of one step: dq, and the readings' gradient added to the grad rows.
#pragma once
#include <cstdint>

#include "kernels/common/records/records.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

struct GxGdsParams {
  void* grad;             // [rows, hd]
  const void* bank;       // [rows, hd], already restored by gx_pa2
  const float* gy;        // [N*C, hd]
  const Record* records;  // [N, C*R]
  float* dq;              // [num_slices, N*C*R] out
  int64_t plane_stride;   // elements between two slices' planes of dq
  int32_t step;
  int32_t num_parallel;
  int32_t chunk_size;
  int32_t num_reads;
  int32_t hd;
  RowType bank_type;
  RowType grad_type;
  int32_t reserved;
};

}  // namespace sdm
