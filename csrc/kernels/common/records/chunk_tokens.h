// Which tokens of a chunk are real (not padding), and where they stand in the caller's tensors.
//
// Four numbers answer both for a chunk, and all that ask go through them. Today they follow from
// sizes that all sequences share; a batch of sequences of several lengths would take them from a
// table with one row for each chunk.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

struct ChunkTokens {
  int64_t before;     // the row of the sequence's first token in the caller's [P, T, .]
  int64_t first;      // the place in that sequence of the chunk's first token
  int64_t length;     // tokens of the sequence: what is behind them is padding
  int64_t apart = 1;  // rows from a token to the next one of its sequence

  // The place in the sequence of the chunk's token `token`, counted from 0.
  SDM_HD int64_t place(int64_t token) const { return first + token; }
  // Of the token at that place.
  SDM_HD bool real(int64_t place) const { return place < length; }
  SDM_HD int64_t row(int64_t place) const { return before + place * apart; }

  // The row of the chunk's first token, which a chunk that has real tokens has.
  SDM_HD int64_t first_row() const { return row(first); }
  // How many tokens of a chunk of `chunk_size` are real.
  SDM_HD int32_t count(int32_t chunk_size) const {
    const int64_t left = length - first;
    return static_cast<int32_t>(left < chunk_size ? left : chunk_size);
  }
};

// Of the chunk of `sequence` in step `step`. Kernels name num_tokens (T), num_parallel (P) and
// chunk_size (C) alike in their parameter blocks.
template <typename Sizes>
SDM_HD ChunkTokens chunk_tokens(const Sizes& sizes, int64_t step, int64_t sequence) {
  return {sequence * sizes.num_tokens, step * sizes.chunk_size, sizes.num_tokens};
}

// Of chunk (ti - first_step)*P + p, as staged tensors count those of the steps from first_step on.
// Of 32 bits or 64: what divides is as wide as the chunk's number.
template <typename Sizes, typename Int>
SDM_HD ChunkTokens staged_chunk_tokens(const Sizes& sizes, int32_t first_step, Int chunk) {
  const Int step = chunk / sizes.num_parallel;
  const Int sequence = chunk - step * sizes.num_parallel;
  return chunk_tokens(sizes, int64_t{step} + first_step, sequence);
}

// The same in a caller's [B, T, heads, .]: head h of batch element b is sequence b*heads + h, and a
// token's heads lie beside each other. With one head it is [P, T, .].
template <typename Sizes, typename Int>
SDM_HD ChunkTokens staged_head_tokens(const Sizes& sizes, int32_t heads, int32_t first_step,
                                      Int chunk) {
  const auto sequence = static_cast<int32_t>(chunk % sizes.num_parallel);
  const int32_t head = sequence % heads;
  ChunkTokens tokens = staged_chunk_tokens(sizes, first_step, chunk);
  tokens.before = (sequence - head) * sizes.num_tokens + head;
  tokens.apart = heads;
  return tokens;
}

}  // namespace sdm
