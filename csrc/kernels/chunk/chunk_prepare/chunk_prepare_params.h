// From the caller's inputs and a chunk's order by slot to log sums and the step chain's records.
#pragma once
#include "kernels/common/records/chunk_events.h"
#include "kernels/common/records/row_weights.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

// N = num_chunks, C = chunk_size, W, R; E = C*(W+R) events and n = C*W writes of a chunk.
struct ChunkPrepareParams {
  const void* k_val;  // [P, T, W]
  const void* q_val;  // [P, T, R]
  const void* beta;   // [P, T]
  const void* g;      // [P, T, num_gates]
  // The chunks' events in stable order by slot; those that have none come last.
  const int32_t* sorted_slots;  // [N, E]: bank rows, then kNoSlot
  const int32_t* order;         // [N, E]: staged places within the chunk
  // For the pairs.
  ChunkEvent* events;  // [N, E], sorted
  int32_t* places;     // [N, E]: where each staged event stands in that list, p; ~p if it has no
                       // partners, or leaves them to another event of its run
  float* beta_rows;    // [N*C]
  // For the step chain; all null where no chain follows. Staged, or sorted (records ..
  // read_records).
  float* pd;             // [N*C, W]
  int32_t* slots;        // [N*C, W]; kNoSlot with a pd of -0
  float* cpe;            // [N*C, W]; may be null
  Record* records;       // [N, n]
  int32_t* bpre;         // [N, ceil(n/32) + 1]
  Record* read_records;  // [N, C*R]
  // For the forward's steps; both null where none follow.
  RowWeight* row_weights;  // [N*C, W+R], staged: {slot, -keff} of the writes, {slot, qeff};
                           // {kNoSlot, -0}
  Record* updates;         // [N, n], sorted: scale = pd, decay = cpe
  int64_t num_tokens;
  int32_t first_step;  // of the staged chunks
  int32_t num_chunks, num_parallel, chunk_size, num_writes, num_reads;
  int32_t num_gates;  // 1 a token, or W
  RowType k_val_type, q_val_type, beta_type, g_type;
  int32_t bf16_weights;  // 1: k and q are rounded to bfloat16 first
};

}  // namespace sdm
