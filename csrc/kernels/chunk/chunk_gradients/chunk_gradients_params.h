// After the chain: the gradients of k, q and g, from pair terms and row dots
// (docs/step_chain.md, section 2), in the caller's layout.
#pragma once
#include "kernels/common/records/chunk_events.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

// What the gates' gradients take from an event.
struct alignas(16) EventTerms {
  double log;   // the gradient of its log sum, without the write's part in the slot's total
  double kept;  // dpd * pd of a write, 0 of a read
};

// One launch each, in this order; kTokens only where `gates` is there. kWhole is all of them in
// one. See chunk_gradients_math.h.
enum class GradientPass { kRuns, kGates, kTokens, kWhole };

struct ChunkGradientsParams {
  const ChunkEvent* events;  // [N, E], sorted by slot; E = C*(W+R)
  const float* beta_rows;    // [N*C]
  const float* d_m;          // [N, C, C]: d_u delta^T; dA = -diag(beta) of it
  const float* d_qk;         // [N, C, C]: gy delta^T
  const float* dpd;          // [N*C, W], as the other row dots
  const float* dkeff;        // [N*C, W]
  const float* d_total;      // [N*C, W]
  const float* dqeff;        // [N*C, R]
  EventTerms* terms;         // [N, E], scratch
  double* gates;             // [N*C, W], scratch; null unless num_gates = 1 < W
  void* dk;                  // [P, T, W]
  void* dq;                  // [P, T, R]
  void* dg;                  // [P, T, num_gates]
  int64_t num_tokens;
  int32_t first_step;  // of the staged chunks
  int32_t num_chunks, num_parallel, chunk_size, num_writes, num_reads;
  int32_t num_gates;
  RowType dk_type, dq_type, dg_type;
};

}  // namespace sdm
