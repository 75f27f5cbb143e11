// The writes of one step: bank rows advanced by their chunk's tokens, the old ones kept.
#pragma once
#include <cstdint>

#include "kernels/common/records/records.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

struct FxWriteParams {
  void* bank;             // [rows, hd], in place
  const float* delta;     // [N*C, hd]
  const Record* updates;  // [N, C*W]: scale = pd, decay = cpe
  void* snap;             // [N*snap_chunk_rows, hd] of the bank's type, dense, out; null: none
  const int32_t* bpre;    // [N, ceil(C*W/32)+1]; null without snapshot
  int32_t step;
  int32_t num_parallel;
  int32_t chunk_size;
  int32_t num_writes;
  int32_t hd;
  RowType bank_type;
  int32_t snap_chunk_rows;  // snapshot rows of a chunk, at most C*W; 0 without a snapshot
  int32_t reserved;
};

}  // namespace sdm
