// token_gates on the device: a block takes some tokens, its threads a token and every so many
// heads.
//
// operand   written in the chain by   loaded
// a_log     nothing                   before the wait (a thread's first head)
// dt_bias   nothing                   before the wait (a thread's first head)
// a         the projections           after the wait
// b         the projections           after the wait
#pragma once
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/layer/token_gates/token_gates_block.h"
#include "kernels/layer/token_gates/token_gates_math.h"

namespace sdm {

__device__ __forceinline__ void token_gates_device(const TokenGatesParams& params) {
  // Whose.
  const int64_t tokens = int64_t{params.num_batches} * params.num_tokens;
  const int32_t tile = gate_tile(tokens), thread = static_cast<int32_t>(threadIdx.x);
  const int64_t flat = int64_t{blockIdx.x} * tile + thread % tile;
  int32_t head = thread / tile;

  // What nothing in a chain writes: loads and an exponential that others wait behind.
  HeadGate gate = {};
  if (head < params.num_heads) gate = head_gate(params, head);
  pdl_wait();
  pdl_trigger();

  // The token's heads.
  if (flat >= tokens || head >= params.num_heads) return;
  const GateToken at = gate_token(params, static_cast<uint32_t>(flat));
  while (true) {
    token_head_gates(params, at, head, gate);
    head += kGateThreads / tile;
    if (head >= params.num_heads) return;
    gate = head_gate(params, head);
  }
}

}  // namespace sdm
