// Thread block clusters (sm_90): the split barrier, and stores into another block's shared memory.
// The barrier and cluster_store() compile to nothing below compute capability 9.0, for kernels that
// are launched without clusters there.
#pragma once
#include <cstdint>

namespace sdm {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The two halves of the cluster's barrier, called by all threads of a warp together. What a thread
// wrote before cluster_arrive() is visible after cluster_wait().
__device__ __forceinline__ void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

// Publishes nothing but what a fence before it did (mbarrier_init_fence): saves the release, a
// memory barrier for the whole GPU.
__device__ __forceinline__ void cluster_arrive_relaxed() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The cluster-wide address of the same shared-memory location in block `rank`.
__device__ __forceinline__ uint32_t cluster_address(uint32_t shared, uint32_t rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

// A float into the same shared-memory location of block `rank`, which must be running; visible
// there behind the barrier.
__device__ __forceinline__ void cluster_store(float* shared, uint32_t rank, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto own = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_address(own, rank)), "f"(value)
               : "memory");
#endif
}

// Four floats into a block's shared memory; its mbarrier counts the 16 bytes when they are there.
// Both addresses are cluster-wide ones of the same block.
__device__ __forceinline__ void cluster_store_async(uint32_t address, const float (&v)[4],
                                                    uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "r"(__float_as_uint(v[0])), "r"(__float_as_uint(v[1])), "r"(__float_as_uint(v[2])),
      "r"(__float_as_uint(v[3])), "r"(barrier)
      : "memory");
}

}  // namespace sdm
