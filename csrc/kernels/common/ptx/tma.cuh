// The bulk tensor copy engine (TMA, sm_90).
#pragma once
#include <cstdint>

namespace sdm {

// `map` is the address of a CUtensorMap in a __grid_constant__ parameter block.
__device__ __forceinline__ void tma_prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}

// Copies the box at element coordinates (column, row) to shared memory; what lies outside the
// tensor arrives as zeros, and the barrier counts the whole box's bytes either way.
__device__ __forceinline__ void tma_load_2d(uint32_t shared, const void* map, int32_t column,
                                            int32_t row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// The same box to the same place in every block of the cluster whose rank is a bit of `blocks`;
// each one's own barrier, at the same place too, counts the bytes.
__device__ __forceinline__ void tma_multicast_2d(uint32_t shared, const void* map, int32_t column,
                                                 int32_t row, uint32_t barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}

// Brings the same box into L2 alone.
__device__ __forceinline__ void tma_prefetch_2d(const void* map, int32_t column, int32_t row) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(
                   reinterpret_cast<uint64_t>(map)),
               "r"(column), "r"(row)
               : "memory");
}

}  // namespace sdm
