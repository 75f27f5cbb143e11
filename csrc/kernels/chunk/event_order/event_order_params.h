// From the caller's indices to a chunk's order by slot.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

// N = num_chunks, C = chunk_size, W, R; E = C*(W+R) events of a chunk.
struct EventOrderParams {
  const void* k_idx;      // [P, T, W] bank rows
  const void* q_idx;      // [P, T, R]
  int32_t* sorted_slots;  // [N, E], out: bank rows; kNoSlot for what is outside, then for padding
  int32_t* order;         // [N, E], out: staged places within the chunk
  int64_t* outside;       // [2], in the host's memory: outside_word() of one of k_idx, of q_idx;
                          // may be null
  int64_t num_tokens;
  int32_t num_slots;  // bank rows of a sequence, one sequence's after another's; 0: all of the bank
  int32_t key_rows;   // num_slots, or the bank's rows
  int32_t key_bits;   // of key_rows - 1
  int32_t place_bits;  // of E - 1
  int32_t first_step;  // of the staged chunks
  int32_t num_chunks, num_parallel, chunk_size, num_writes, num_reads;
  int32_t wide_k_idx, wide_q_idx;  // 1: int64
};

}  // namespace sdm
