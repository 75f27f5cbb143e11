// Log sums of every chunk's writes and reads, sorted by slot, and the step chain's records.
#pragma once
#include <optional>

#include "kernels/chunk/chunk_prepare/chunk_prepare_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

// The operands of the step chain that follow from the inputs. N = steps * P chunks, which may be
// some of the call's; n = C*W.
struct ChainRecordRefs {
  TensorRef pd;                  // float32 [N*C, W]
  TensorRef slots;               // int32 [N*C, W]
  std::optional<TensorRef> cpe;  // float32 [N, n]; rec has the same factors, sorted
  TensorRef rec;                 // int32 [N, n, 4]
  TensorRef bpre;                // int32 [N, ceil(n/32) + 1]
  TensorRef qrec;                // int32 [N, C*R, 4]
};

// The operands of the forward's steps that follow from the inputs.
struct StepRecordRefs {
  TensorRef row_weights;  // int32 [N*C, W+R, 2]
  TensorRef updates;      // int32 [N, n, 4]
};

struct ChunkPrepareArgs {
  TensorRef k_val;  // float32 or bfloat16 [P, T, W], as all that follow
  TensorRef q_val;  // [P, T, R]
  TensorRef beta;   // [P, T, 1]
  TensorRef g;      // [P, T, 1] or [P, T, W]
  // As event_order leaves them; E = C*(W+R).
  TensorRef sorted_slots;  // int32 [N, E]
  TensorRef order;         // int32 [N, E]
  TensorRef events;  // float64 [N, E, 2], out: {log sum, bits of f32 weight and of the event word}
  TensorRef places;  // int32 [N, E], out: where each staged event stands in `events`, p, or ~p
  TensorRef beta_rows;                   // float32 [N*C], out
  std::optional<ChainRecordRefs> chain;  // out
  std::optional<StepRecordRefs> steps;   // out
  int64_t chunk_size = 0;
  int64_t first_step = 0;     // of the N chunks
  bool bf16_weights = false;  // round k_val and q_val to bfloat16 first
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void chunk_prepare(plancap::Sink& sink, const ChunkPrepareArgs& args);

// The host twin.
void chunk_prepare_host(const ChunkPrepareParams& params);

const plancap::KernelInfo& chunk_prepare_info();

}  // namespace sdm
