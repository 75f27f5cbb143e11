// Barriers in shared memory (mbarrier, sm_90): arrivals plus expected bytes complete a phase.
#pragma once
#include <cstdint>

// Long for a kernel; short for one that a tool slows down a thousand times.
#if defined(SDM_BOUNDED_WAIT) && !defined(SDM_BOUNDED_WAIT_SECONDS)
#define SDM_BOUNDED_WAIT_SECONDS 2
#endif

namespace sdm {

// The address that shared-memory instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialized barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival at a barrier of any block of the cluster, by its cluster-wide address. Relaxed: it
// reports reads that are complete, and publishes no writes. A release would be a memory barrier for
// the whole GPU. Only where `active`: a predicate and no branch, which amid queued wgmma would make
// the compiler run them one by one.
__device__ __forceinline__ void mbarrier_arrive_cluster_relaxed(uint32_t barrier, bool active) {
  asm volatile(
      "{\n"
      ".reg .pred active;\n"
      "setp.ne.u32 active, %1, 0;\n"
      "@active mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];\n"
      "}" ::"r"(barrier),
      "r"(static_cast<uint32_t>(active))
      : "memory");
}

// One arrival, and `bytes` more that asynchronous copies must deliver in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}

// The same for a phase that other blocks of the cluster complete.
__device__ __forceinline__ bool mbarrier_try_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}

// Spins until try_wait() holds. With SDM_BOUNDED_WAIT a wait of about SDM_BOUNDED_WAIT_SECONDS
// traps, so that a mistake in a debug build is an error and not a hung device.
template <typename TryWait>
__device__ __forceinline__ void spin_until(const TryWait& try_wait) {
#if defined(SDM_BOUNDED_WAIT)
  const long long start = clock64();
  while (!try_wait()) {
    if (clock64() - start > SDM_BOUNDED_WAIT_SECONDS * 2'000'000'000ll) asm volatile("trap;");
  }
#else
  while (!try_wait()) {
  }
#endif
}

// Waits for the phase of this parity to complete: 0 for a barrier's first phase, then 1, 0, ...
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  spin_until([&] { return mbarrier_try_wait(barrier, parity); });
}

__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  spin_until([&] { return mbarrier_try_wait_cluster(barrier, parity); });
}

}  // namespace sdm
