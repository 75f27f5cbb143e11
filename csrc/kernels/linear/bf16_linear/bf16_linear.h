// y = x weight^T + bias for few rows of x, on Hopper. See DESIGN.md.
#pragma once
#include <optional>

#include "kernels/linear/bf16_linear/bf16_linear_params.h"
#include "kernels/linear/bf16_linear/bf16_linear_pick.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct Bf16LinearArgs {
  TensorRef x;       // bfloat16 [M, K], stride 1 along K, rows at multiples of 16 bytes
  TensorRef weight;  // bfloat16 [N, K], likewise
  std::optional<TensorRef> bias;           // bfloat16 [N], contiguous
  TensorRef y;                             // bfloat16 [M, N], contiguous, out
  std::optional<Bf16LinearChoice> choice;  // absent: bf16_linear_pick
  bool pdl = false;
};

// Checks the arguments, chooses a tactic and hands over one launch, whose parameter block lacks its
// tensor maps: they are made by KernelInfo::finish, from addresses that a plan may still change.
void bf16_linear(plancap::Sink& sink, const Bf16LinearArgs& args);

// The check of a decoded plan (plancap/format/param_view.h).
void check_bf16_linear_plan(const plancap::ParamView& view);

// There is no host twin: see DESIGN.md.
const plancap::KernelInfo& bf16_linear_info();

}  // namespace sdm
