// y[m, n] = bf16(sum over k of weight[n, k] * x[m, k] + bias[n]), f32 sums.
#pragma once
#include <cstdint>

namespace sdm {

// A CUtensorMap, opaque here: the copy engine reads it from the parameter block. Aligned as the
// driver declares it.
struct alignas(128) TensorMapBytes {
  uint8_t bytes[128];
};

struct Bf16LinearParams {
  TensorMapBytes weight_map;  // [N, K] in boxes of [rows, 64]; embeds the address `weight`
  TensorMapBytes x_map;       // [M, K] in boxes of [tokens / sharers, 64]; embeds the address `x`
  const uint16_t* weight;     // [N, K], row stride weight_stride
  const uint16_t* x;          // [M, K], row stride x_stride
  const uint16_t* bias;       // [N], or null
  uint16_t* y;                // [M, N], row stride y_stride
  int64_t weight_stride;      // in elements, as the others
  int64_t x_stride;
  int64_t y_stride;
  int32_t num_rows;        // N
  int32_t num_tokens;      // M
  int32_t depth;           // K
  int32_t depth_tiles;     // ceil(K / the tactic's depth)
  int32_t splits;          // this many blocks of a cluster share the depth of one output tile
  int32_t split_inverse;   // bf16_linear_inverse(splits)
  int32_t paired_store;    // 1: y's rows are 4-byte aligned, so two columns go in one store
  int32_t tactic;          // index into the tactic table, which the maps' boxes belong to
  int32_t trigger_lead;    // dependents start when all but this many token tiles are asked for
  int32_t prefetch_tiles;  // weight tiles past the ring that are brought into L2 ahead
  int32_t reserved[2];
};

}  // namespace sdm
