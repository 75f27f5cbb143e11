// Decoding: a sequence's tokens one after the other, each read and written in the bank at once.
#pragma once
#include "kernels/common/math/host_device.h"
#include "kernels/common/rows/row_types.h"

namespace sdm {

// Sequence p = b*H + h owns the bank's rows [p*S, (p+1)*S). Slots ascend within a token.
struct DecodeStepParams {
  void* bank;            // [P*S, hd], in place
  const int32_t* k_idx;  // [P, T, W] bank rows
  const float* k_val;    // [P, T, W]
  const void* v;         // [B, T, H, hd] at its strides
  const float* beta;     // [P, T]
  const float* g;        // [P, T, num_gates]
  const int32_t* q_idx;  // [P, T, R] bank rows
  const float* q_val;    // [P, T, R]
  void* readings;        // [B, T, H, hd] at its strides, of the bank's type, out
  // Strides in elements.
  int64_t v_batch, v_token, v_head;
  int64_t readings_batch, readings_token, readings_head;
  int32_t num_parallel;  // P
  int32_t num_heads;     // H
  int32_t num_slots;     // S
  int32_t num_tokens;    // T
  int32_t num_writes;
  int32_t num_reads;
  int32_t num_gates;     // 1 a token, or W
  int32_t key_weighted;  // 1: the gate of a write is g * k_val, unrounded (num_gates is 1)
  int32_t hd;
  RowType bank_type, v_type;
  int32_t reserved;
};

}  // namespace sdm
