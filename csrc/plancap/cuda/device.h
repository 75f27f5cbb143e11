// A CUDA device as the runtime uses it: torch's own (primary) context, identity and profile.
#pragma once
#include <array>
#include <string>

#include "plancap/capture/sink.h"
#include "plancap/cuda/device_profile.h"
#include "plancap/cuda/driver.h"

namespace sdm::plancap::cuda {

struct DeviceInfo {
  int index = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;  // the primary one; retained for the life of the process
  std::string name;             // "cuda:0 (NVIDIA H200)"
  std::array<uint8_t, 16> uuid{};
  int sm_count = 0;
  uint32_t shared_bytes_optin = 0;  // the device's own, whatever profile it runs as
  DeviceProfile profile{};
};

// The device torch calls cuda:index. Asks the driver once per device; thread-safe. Throws kCuda for
// no driver, no such device or an unsupported one.
const DeviceInfo& device_info(int index);

Target target_of(const DeviceInfo& device);

// "GPU-1b0c..." as nvidia-smi prints it.
std::string uuid_text(const std::array<uint8_t, 16>& uuid);

// Makes the device's context current while it lives.
class ContextGuard {
 public:
  explicit ContextGuard(const DeviceInfo& device);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  bool pushed_ = false;
};

// Lets this thread load code, and make, change and launch graphs, while a stream capture of any
// thread is under way: nothing of it becomes part of a capture of another stream.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace sdm::plancap::cuda
