// The gradients of product-key scores from those of the selected slots' weights.
#pragma once
#include <optional>
#include <vector>

#include "kernels/layer/slot_select_grad/slot_select_grad_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct SlotGradSideArgs {
  TensorRef d_weights;               // float32 [B*H, T, k]
  TensorRef slots;                   // int32 [B*H, T, k], as slot_select stores them
  std::optional<TensorRef> weights;  // float32 [B*H, T, k]; none without an activation
  std::optional<TensorRef> norms;    // float32 [B*H, T]: with kL2 alone
  TensorRef d_scores;                // float32 or bfloat16 [B, T, H*K], out
  SlotActivation activation = SlotActivation::kNone;
  float scale = 1.0f;
};

struct SlotSelectGradArgs {
  std::optional<SlotGradSideArgs> key, query;  // at least one; the same B, T and dtype
  std::vector<int64_t> widths;                 // the factors'
  int64_t num_heads = 1;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void slot_select_grad(plancap::Sink& sink, const SlotSelectGradArgs& args);

// The host twin.
void slot_select_grad_host(const SlotSelectGradParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_slot_select_grad_plan(const plancap::ParamView& view);

const plancap::KernelInfo& slot_select_grad_info();

}  // namespace sdm
