// What launches of bf16_linear and of bf16_linear_group ask of a target, an operand and a tactic.
#pragma once
#include "kernels/linear/bf16_linear/bf16_linear_pick.h"
#include "plancap/capture/sink.h"

namespace sdm {

// A CUDA device of compute capability 9.0.
void expect_bf16_linear_target(const char* where, const plancap::Target& target);

// bfloat16 [1..most_rows, K] that the copy engine can read.
void expect_bf16_linear_rows(const char* where, const char* argument, const TensorRef& tensor,
                             int64_t most_rows);

// A row of the tactic table, with splits that it can have.
void expect_bf16_linear_choice(const char* where, Bf16LinearChoice choice);

// The distance of a checked operand's rows; with one row any multiple of 16 bytes will do.
int64_t bf16_linear_row_stride(const TensorRef& tensor);

// An operand of which any step may touch any part, at a multiple of so many bytes.
plancap::Operand bf16_linear_operand(const char* field, const char* name, const TensorRef& tensor,
                                     plancap::Access access, uint32_t align_bytes);

plancap::LaunchConfig bf16_linear_config(const Bf16LinearShape& shape, Bf16LinearChoice choice,
                                         bool pdl);

}  // namespace sdm
