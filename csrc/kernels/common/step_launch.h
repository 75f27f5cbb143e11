// What every step launcher does the same way: find N and the step count, patch the step, describe
// an operand.
#pragma once
#include "plancap/error.h"
#include "plancap/sink.h"

namespace sdm {

// The steps a launch is for. A plan starts at its last step, the first that a chain runs.
struct StepRange {
  int32_t first_run;  // the value recorded in the parameter block
  uint32_t steps;     // 1 for a launch of one step
  std::vector<plancap::Patch> patches;
};

// num_chunks = N. Throws a ValueError for a step or a plan outside 0 .. N/P.
StepRange step_range(const char* where, int64_t num_chunks, int64_t num_parallel, int64_t ti,
                     int64_t steps);

// P >= 1 that divides N.
void expect_num_parallel(const char* where, int64_t num_chunks, int64_t num_parallel);

// 16 <= C <= 256 and 1 <= entries per token <= 256, 1 <= hd <= 2^20.
void expect_chunk_size(const char* where, int64_t chunk_size);
void expect_entries(const char* where, const char* argument, int64_t entries);
void expect_head_dim(const char* where, int64_t hd);

// An operand of which step ti touches an equal share, the steps' shares one after the other.
plancap::Operand per_step(const char* name, const TensorRef& tensor, plancap::Access access,
                          int64_t num_steps);

// An operand of which any step may touch any part.
plancap::Operand whole(const char* name, const TensorRef& tensor, plancap::Access access);

// A launch on the host backend: one "block", or none for an empty problem.
plancap::LaunchConfig host_config(bool empty);

}  // namespace sdm
