// The sizes of a chunked call, and what stands where in its per-token inputs and staged tensors.
// Staged tensors hold the chunks of the steps from `first_step` on, the inputs all of the call.
#pragma once
#include "kernels/common/records/chunk_tokens.h"

namespace sdm {

struct ChunkShape {
  int64_t num_tokens;  // T, per sequence
  int32_t first_step;
  int32_t num_parallel, chunk_size, num_writes, num_reads;

  SDM_HD int32_t writes() const { return chunk_size * num_writes; }
  SDM_HD int32_t reads() const { return chunk_size * num_reads; }
  SDM_HD int32_t per_token() const { return num_writes + num_reads; }
  SDM_HD int32_t events() const { return chunk_size * per_token(); }
};

// From a parameter block: the kernels that work on whole chunks name these fields alike.
template <typename Params>
SDM_HD ChunkShape shape_of(const Params& params) {
  return {params.num_tokens, params.first_step, params.num_parallel,
          params.chunk_size, params.num_writes, params.num_reads};
}

// A write or a read of a token.
struct Entry {
  int32_t token;  // within its chunk
  int32_t index;  // 0..W-1 or 0..R-1
  bool is_read;
};

// A chunk's events are staged token by token, the token's writes before its reads.
SDM_HD Entry entry_at(const ChunkShape& shape, int32_t place) {
  const int32_t token = place / shape.per_token();
  const int32_t column = place - token * shape.per_token();
  const bool is_read = column >= shape.num_writes;
  return {token, is_read ? column - shape.num_writes : column, is_read};
}

SDM_HD ChunkTokens chunk_tokens(const ChunkShape& shape, int32_t chunk) {
  return staged_chunk_tokens(shape, shape.first_step, chunk);
}

}  // namespace sdm
