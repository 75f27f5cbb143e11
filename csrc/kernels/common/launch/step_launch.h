// What every step launcher does the same way: find N and the step count, patch the step, describe
// the launch and its operands.
#pragma once
#include <optional>

#include "kernels/common/rows/row_types.h"
#include "plancap/base/error.h"
#include "plancap/capture/sink.h"

namespace sdm {

// The steps a launch is for. A plan is recorded at its last step; a chain patches the others in.
struct StepRange {
  int32_t recorded_step;  // the value recorded in the parameter block
  uint32_t steps;         // 1 for a launch of one step
  std::vector<plancap::Patch> patches;
};

// num_chunks = N. Throws a ValueError for a step or a plan outside 0 .. N/P.
StepRange step_range(const char* where, int64_t num_chunks, int64_t num_parallel, int64_t ti,
                     std::optional<int64_t> steps);

// A launch of these steps. Its operands and, on a device, its geometry are still to come; `params`
// must live as long.
plancap::Launch step_launch(const plancap::KernelInfo& kernel, const void* params,
                            const StepRange& range);

// P >= 1 that divides N.
void expect_num_parallel(const char* where, int64_t num_chunks, int64_t num_parallel);

// 1 <= C <= 256, 1 <= entries per token <= 256, 1 <= hd <= 2^20.
void expect_chunk_size(const char* where, int64_t chunk_size);
void expect_entries(const char* where, const char* argument, int64_t entries);
void expect_head_dim(const char* where, int64_t hd);

// A tensor of one row per token: [N*C, width] or [N, C, width].
void expect_token_rows(const char* where, const char* argument, const TensorRef& tensor,
                       int64_t num_chunks, int64_t chunk_size, int64_t width,
                       Dtype dtype = Dtype::kFloat32);

// What tokens take of bank rows: int32 [N*C, entries, 2], aligned to 8 bytes.
void expect_row_weights(const char* where, const char* argument, const TensorRef& tensor);

// Bank or grad rows: [rows, hd] of float32 or bfloat16 with 0 < rows < 2^31. Returns their type.
RowType expect_bank_rows(const char* where, const char* argument, const TensorRef& tensor);

// The grad rows of a checked bank: its shape, float32 or the bank's own type.
RowType expect_grad_of_bank(const char* where, const TensorRef& grad, const TensorRef& bank);

// Sorted entries: int32 [N, entries, 4], aligned to 16 bytes.
void expect_records(const char* where, const char* argument, const TensorRef& tensor,
                    int64_t entries);

// The slices' planes of one float per entry: float32 [num_slices(hd), entries], or any shape with
// that many elements when there is one slice.
void expect_planes(const char* where, const char* argument, const TensorRef& tensor, int64_t hd,
                   int64_t entries);

// T tokens in steps of C: expects N / P = ceil(T / C).
void expect_num_tokens(const char* where, int64_t num_tokens, int64_t num_steps,
                       int64_t chunk_size);

// An operand of which step ti touches an equal share, the steps' shares one after the other.
plancap::Operand per_step(const char* name, const TensorRef& tensor, plancap::Access access,
                          int64_t num_steps);

// per_step for planes: a step's share is one piece only where there is one slice.
plancap::Operand planes_operand(const char* name, const TensorRef& tensor, int64_t hd,
                                int64_t num_steps);

// An operand of which any step may touch any part.
plancap::Operand whole(const char* name, const TensorRef& tensor, plancap::Access access);

}  // namespace sdm
