// Index lists of the forward's step loop, for all steps of a segment.
#pragma once
#include "kernels/step_lists/step_lists_params.h"
#include "plancap/sink.h"

namespace sdm {

// S steps, N = S*P chunks, n = C*W, m = C*R. What the lists hold: step_lists_params.h.
struct StepListsArgs {
  TensorRef events;          // float64 [N, C*(W+R), 2], as chunk_prepare leaves them
  TensorRef k_idx;           // int32 or int64 [P, T, W], absolute bank rows
  TensorRef q_idx;           // int32 or int64 [P, T, R]
  TensorRef gather;          // int64 [S, P*n], or [S, P*n + P*m] to fetch the read rows too; out
  TensorRef bags;            // int64 [S, P*C*(1+W) + P*m], out
  TensorRef bag_weights;     // float32, as bags; out
  TensorRef update_bags;     // int64 [S, 2*P*n], out
  TensorRef update_weights;  // float32, as update_bags; out
  TensorRef update_offsets;  // int64 [S, P*n], out
  TensorRef update_sources;  // int64 [S, P*n], out
  TensorRef used;            // int32 [N], out
  int64_t chunk_size = 0;
  int64_t first_step = 0;  // of the N chunks
  // Rows of the table that the bags take rows from.
  int64_t v_row = 0;
  int64_t group_row = 0;
  int64_t group_stride = 0;
  int64_t read_row = 0;
  int64_t zero_row = 0;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void step_lists(plancap::Sink& sink, const StepListsArgs& args);

// The host twin.
void step_lists_host(const StepListsParams& params);

const plancap::KernelInfo& step_lists_info();

}  // namespace sdm
