// The matrices A and QK of a chunk (docs/step_chain.md, section 2), from its sorted events.
#pragma once
#include "kernels/common/records/chunk_events.h"

namespace sdm {

struct PairMatricesParams {
  const ChunkEvent* events;  // [N, C*(W+R)], sorted by slot
  const int32_t* places;     // [N, C*(W+R)]: where each staged event stands in that list, p; ~p if
                             // it has no partners, or leaves them to another event of its run
  const float* beta_rows;    // [N*C]
  float* a;                  // [N, C, C]; may be null
  float* system;             // [N, C, C]: diag(beta) A
  float* qk;                 // [N, C, C]
  int32_t num_chunks, chunk_size, num_writes, num_reads;
};

}  // namespace sdm
