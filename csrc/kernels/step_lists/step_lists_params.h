// Index lists of the forward's step loop, from the sorted events of every chunk.
#pragma once
#include "kernels/common/chunk_events.h"

namespace sdm {

// A step takes weighted sums of rows of one table, which holds v (later delta) of all tokens, the
// written groups' rows and, if `fetched`, the read ones. n = C*W, m = C*R; S steps, N = S*P.
struct StepListsParams {
  const ChunkEvent* events;  // [N, C*(W+R)], sorted by slot
  const void* k_idx;         // [P, T, W] bank rows
  const void* q_idx;         // [P, T, R]
  int64_t* gather;           // [S, P*n]: the groups' bank rows; if fetched [S, P*n + P*m]
  int64_t* bags;             // [S, P*C*(1+W) + P*m]: {v, groups} per token; then {reads} per token
  float* bag_weights;        // as bags
  int64_t* update_bags;      // [S, 2*P*n]: {own row, its tokens' deltas ..} per group
  float* update_weights;     // as update_bags
  int64_t* update_offsets;   // [S, P*n]: where each group's bag starts
  int64_t* update_sources;   // [S, P*n]: each group's bag; a group that is none repeats the first
  int32_t* used;             // [N]: how many groups a chunk has
  int64_t num_tokens;
  int64_t v_row;         // table row of the first staged token
  int64_t group_row;     // of the first step's groups
  int64_t group_stride;  // from a step's groups to the next step's
  int64_t read_row;      // of the reads, if fetched
  int64_t zero_row;
  int32_t first_step;  // of the staged chunks
  int32_t num_chunks, num_parallel, chunk_size, num_writes, num_reads;
  int32_t wide_k_idx, wide_q_idx;  // 1: int64
  int32_t fetched;
  int32_t reserved;
};

}  // namespace sdm
