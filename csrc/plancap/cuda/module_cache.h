// Loaded device functions, by device and entry. They live as long as the process.
#pragma once
#include "plancap/cuda/device.h"
#include "plancap/cuda/device_code.h"
#include "plancap/format/kernel_info.h"

namespace sdm::plancap::cuda {

struct DeviceKernel {
  const CodeEntry* code = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;  // of the device's primary context
  uint32_t static_shared_bytes = 0;
  uint32_t max_threads = 0;           // a block may have, by the registers it takes
  uint32_t allowed_shared_bytes = 0;  // dynamic; raised when a plan asks for more
  bool allows_large_clusters = false;
};

// The entry, loaded on the device and allowed what `config` asks for. Reads and loads the image on
// first use; thread-safe; safe during a stream capture. Throws kCuda for an entry that is missing,
// takes another parameter block than `kernel` describes, or cannot be launched with `config`.
const DeviceKernel& load_kernel(const DeviceInfo& device, const std::string& entry,
                                const KernelInfo& kernel, const LaunchConfig& config);

}  // namespace sdm::plancap::cuda
