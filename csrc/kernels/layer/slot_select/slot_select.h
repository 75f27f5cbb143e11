// The best k slots of product-key scores, with their weights.
#pragma once
#include <optional>
#include <vector>

#include "kernels/layer/slot_select/slot_select_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct SlotSelectSideArgs {
  TensorRef scores;     // float32 or bfloat16 [B, T, columns], the last dimension contiguous
  int64_t first = 0;    // the H*K columns from here on are the scores
  TensorRef positions;  // uint8 [M, F]: the table of candidates, best first
  TensorRef slots;      // int32 [B*H, T, k], out: ascending, (b*H + h)*S + slot
  TensorRef weights;    // float32 [B*H, T, k], out
  std::optional<TensorRef> norms;  // float32 [B*H, T], out: with kL2 alone
  SlotActivation activation = SlotActivation::kNone;
  float scale = 1.0f;
};

struct SlotSelectArgs {
  std::optional<SlotSelectSideArgs> key, query;  // at least one; the same B, T and dtype
  std::vector<int64_t> widths;                   // the factors'
  int64_t num_heads = 1;
  bool pdl = false;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void slot_select(plancap::Sink& sink, const SlotSelectArgs& args);

// The host twin.
void slot_select_host(const SlotSelectParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_slot_select_plan(const plancap::ParamView& view);

const plancap::KernelInfo& slot_select_info();

}  // namespace sdm
