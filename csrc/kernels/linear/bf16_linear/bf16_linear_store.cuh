// The end of a block: the partial sums of its tokens are added, the bias last, and stored.
#pragma once
#include "kernels/common/math/bf16.h"
#include "kernels/linear/bf16_linear/bf16_linear_block.cuh"

namespace sdm::bf16_linear_device {

__device__ __forceinline__ float4 load_shared_float4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// Columns n and n + 1 of one row of y, those below N.
template <typename Params>
__device__ __forceinline__ void store_pair(const Params& params, uint16_t* row, int32_t n, float a,
                                           float b) {
  const uint32_t low = float_to_bf16(a), high = float_to_bf16(b);
  if (params.paired_store && n + 1 < params.num_rows) {
    *reinterpret_cast<uint32_t*>(row + n) = high << 16 | low;
  } else {
    if (n < params.num_rows) row[n] = static_cast<uint16_t>(low);
    if (n + 1 < params.num_rows) row[n + 1] = static_cast<uint16_t>(high);
  }
}

// The bias of the rows r, r + 1, r + 8, r + 9 that a thread finishes. Kept as bits until the end,
// so that nothing waits for the loads before the product.
struct BiasBits {
  uint16_t at[4];
};

// Loaded past the non-coherent path: the bias may be a predecessor's output.
__device__ __forceinline__ uint16_t load_coherent(const uint16_t* address) {
  uint16_t bits;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(address) : "memory");
  return bits;
}

template <typename C, typename Params>
__device__ __forceinline__ BiasBits load_bias(const Params& params, int32_t row0) {
  const uint32_t row = bf16_linear_unit_row(threadIdx.x % (C::kRows / 4));
  BiasBits bias{};  // zeros
  if (params.bias == nullptr) return bias;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const auto n = static_cast<int32_t>(row0 + row + i / 2 * 8 + i % 2);
    if (n < params.num_rows) bias.at[i] = load_coherent(params.bias + n);
  }
  return bias;
}

// The sums of a unit: rows r, r + 1, r + 8, r + 9 (the index) of tokens t and t + 1.
struct UnitSums {
  float first[4], second[4];

  __device__ void add(uint32_t place) {
    const float4 a = load_shared_float4(place), b = load_shared_float4(place + 16);
    first[0] += a.x, first[1] += b.x, first[2] += a.z, first[3] += b.z;
    second[0] += a.y, second[1] += b.y, second[2] += a.w, second[3] += b.w;
  }
};

// One token of a unit: the bias last, one rounding, the rows and tokens that exist.
template <typename Params>
__device__ __forceinline__ void store_token(const Params& params, int32_t m, int32_t n,
                                            const float (&sums)[4], const BiasBits& bias) {
  if (m >= params.num_tokens) return;
  float out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = sums[i] + bf16_to_float(bias.at[i]);
  uint16_t* row = params.y + m * params.y_stride;
  store_pair(params, row, n, out[0], out[1]);
  store_pair(params, row, n + 8, out[2], out[3]);
}

// Adds the partial sums of this block's tokens in the order of the ranks and stores the results.
template <typename C, typename Params>
__device__ __forceinline__ void finish_tokens(const Params& params, const Work<C>& work,
                                              uint32_t exchange, const BiasBits& bias) {
  constexpr uint32_t kUnits = C::kRows / 4;  // of a pair of tokens
  static_assert(kBf16LinearMathThreads % kUnits == 0, "a thread must stay with its four rows");
  constexpr uint32_t kUnitBytes = 8 * 4;
  const uint32_t unit = threadIdx.x % kUnits;
  const auto n = static_cast<int32_t>(work.row0 + bf16_linear_unit_row(unit));
  const uint32_t step = kBf16LinearMathThreads / kUnits;
  for (uint32_t turn = threadIdx.x / kUnits; turn < work.share; turn += step) {
    const auto m = static_cast<int32_t>(work.token0 + 2 * (turn * work.splits + work.rank));
    if (m >= params.num_tokens) break;
    UnitSums sums{};
    for (uint32_t rank = 0; rank < work.splits; ++rank) {
      const uint32_t line = rank * work.most_pairs + turn;
      sums.add(exchange + line * C::kPairBytes + unit * kUnitBytes);
    }
    store_token(params, m, n, sums.first, bias);
    store_token(params, m + 1, n, sums.second, bias);
  }
}

}  // namespace sdm::bf16_linear_device
