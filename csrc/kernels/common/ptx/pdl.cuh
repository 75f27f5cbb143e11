// Programmatic dependent launch, device side. Compiled to nothing below compute capability 9.0.
#pragma once

namespace sdm {

// Until the grids that this one depends on are complete and their writes visible. What comes before
// reads only operands that no kernel in flight writes (each kernel's table of operands says which).
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the chain start. Only after pdl_wait(): then a kernel that is running has
// only its own predecessor in flight beside it, and all before that are complete.
__device__ __forceinline__ void pdl_trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace sdm
