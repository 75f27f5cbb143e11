// The device functions in the emulation. The table is written by the test that builds it.
#pragma once
#include <span>

namespace emulation {

struct EmulatedKernel {
  const char* entry;
  void (*run)(const void* params);
};
extern const std::span<const EmulatedKernel> kEmulatedKernels;

}  // namespace emulation
