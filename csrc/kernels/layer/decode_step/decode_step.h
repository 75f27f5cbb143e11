// The decoding step: few tokens of every sequence written and read by one launch. See DESIGN.md.
#pragma once
#include "kernels/layer/decode_step/decode_step_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

inline constexpr int32_t kDecodeMostTokens = 256;

struct DecodeStepArgs {
  TensorRef bank;      // float32 or bfloat16 [P*S, hd], in place
  TensorRef k_idx;     // int32 [P, T, W], bank rows, ascending within a token
  TensorRef k_val;     // float32 [P, T, W]
  TensorRef v;         // float32 or bfloat16 [B, T, H, hd] of any strides, the last one 1; P = B*H
  TensorRef beta;      // float32, P*T elements
  TensorRef g;         // float32, P*T or P*T*W elements
  TensorRef q_idx;     // int32 [P, T, R], bank rows, ascending within a token
  TensorRef q_val;     // float32 [P, T, R]
  TensorRef readings;  // [B, T, H, hd] of the bank's dtype, strides as v's, rows apart, out
  int64_t slots = 0;   // S
  bool key_weighted = false;  // the gate of a write is g[token] * k_val
  bool pdl = false;           // only for recording: ask for a programmatic launch
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void decode_step(plancap::Sink& sink, const DecodeStepArgs& args);

// The host twin.
void decode_step_host(const DecodeStepParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_decode_step_plan(const plancap::ParamView& view);

const plancap::KernelInfo& decode_step_info();

}  // namespace sdm
