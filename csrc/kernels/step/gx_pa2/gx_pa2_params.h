// Write side of one step: row gradients advanced, bank rows restored, the entries' dots.
#pragma once
#include <cstdint>

#include "kernels/common/records/records.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

struct GxPa2Params {
  void* grad;              // [rows, hd]
  void* bank;              // [rows, hd]
  const void* snap;        // [snapshot rows, hd], or hd/2 bytes a row for int4
  const float* scales;     // [snapshot rows]; null unless snapshots are quantized
  const float* d_u;        // [N*C, hd]
  const float* beta;       // [N*C]
  const Record* records;   // [N, C*W]
  const int32_t* bpre;     // [N, ceil(C*W/32)+1] for the dense snapshot layout, else null
  float* out_eff;          // [num_slices, N*C*W] out
  float* out_g;            // [num_slices, N*C*W] out
  int64_t snap_step_rows;  // rows of one step in the per-entry layout; 0: the dense layout
  int64_t plane_stride;    // elements between two slices' planes of out_eff and out_g
  int32_t step;
  int32_t num_parallel;
  int32_t chunk_size;
  int32_t num_writes;
  int32_t hd;
  RowType bank_type;
  RowType snap_type;
  RowType grad_type;
  int32_t snap_chunk_rows;  // rows of a chunk in the dense layout, at most C*W; 0: not dense
  int32_t reserved;
};

}  // namespace sdm
