// What the launchers of the kernels that work on whole chunks do the same way.
#pragma once
#include "kernels/common/records/chunk_shape.h"
#include "kernels/common/rows/row_types.h"
#include "plancap/capture/sink.h"

namespace sdm {

// Throws a ValueError for sizes that no call has, and unless `num_chunks` are the chunks of some of
// its steps from first_step on.
void expect_chunks(const char* where, const ChunkShape& shape, int64_t num_chunks);

// Into a parameter block: what shape_of() finds there, and the chunks' number.
template <typename Params>
void put_shape(Params& params, const ChunkShape& shape, int64_t num_chunks) {
  params.num_tokens = shape.num_tokens;
  params.first_step = shape.first_step;
  params.num_chunks = static_cast<int32_t>(num_chunks);
  params.num_parallel = shape.num_parallel;
  params.chunk_size = shape.chunk_size;
  params.num_writes = shape.num_writes;
  params.num_reads = shape.num_reads;
}

// float32 or bfloat16 of this shape. Returns which.
RowType expect_values(const char* where, const char* argument, const TensorRef& tensor,
                      std::initializer_list<Dim> shape);

// A caller's rows of hd columns: float32 or bfloat16 [P, T, hd], or [B, T, H, hd] with P = B*H.
struct ValueRows {
  RowType type;
  int64_t sequences, tokens, heads;
};
ValueRows expect_value_rows(const char* where, const char* argument, const TensorRef& tensor,
                            int64_t hd);

// int32 or int64 of this shape. Returns 1 for int64.
int32_t expect_indices(const char* where, const char* argument, const TensorRef& tensor,
                       std::initializer_list<Dim> shape);

// Pairs of 8 bytes, read 16 bytes at a time: float64 [N, events, 2].
void expect_event_pairs(const char* where, const char* argument, const TensorRef& tensor,
                        int64_t num_chunks, int64_t events);

// A block for every chunk, of about an eighth of its events and at most `most_threads`.
plancap::LaunchConfig chunk_config(int64_t num_chunks, int32_t events, int32_t most_threads,
                                   uint32_t shared_bytes);

}  // namespace sdm
