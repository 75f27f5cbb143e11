// y_i = x weight_i^T + bias_i for few rows of x and several weights, in one launch, on Hopper. See
// DESIGN.md.
#pragma once
#include <optional>
#include <vector>

#include "kernels/linear/bf16_linear_group/bf16_linear_group_params.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_pick.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct Bf16LinearGroupArgs {
  struct Member {
    TensorRef weight;  // bfloat16 [N, K], stride 1 along K, rows at multiples of 16 bytes
    std::optional<TensorRef> bias;  // bfloat16 [N], contiguous
    TensorRef y;                    // bfloat16 [M, N], contiguous, out
  };
  TensorRef x;                             // bfloat16 [M, K], as a weight
  std::vector<Member> members;             // 1..8
  std::optional<Bf16LinearChoice> choice;  // absent: bf16_linear_group_pick
  bool pdl = false;
};

// Checks the arguments, chooses a tactic for the whole group and hands over one launch, whose
// parameter block lacks its tensor maps (see bf16_linear). A member's bits are those of bf16_linear
// with the same tactic and splits. In plans x is group_x, and member i has weight_i, bias_i and
// y_i.
void bf16_linear_group(plancap::Sink& sink, const Bf16LinearGroupArgs& args);

// The check of a decoded plan (plancap/format/param_view.h).
void check_bf16_linear_group_plan(const plancap::ParamView& view);

// KernelInfo::finish: the maps of a parameter block anywhere in memory, with maps of recent calls
// kept. Throws kCuda without a driver.
void bf16_linear_group_finish(void* params);

// There is no host twin: see bf16_linear's.
const plancap::KernelInfo& bf16_linear_group_info();

}  // namespace sdm
