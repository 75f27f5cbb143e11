#include "plancap/cuda/private_stream.h"

#include <map>
#include <mutex>
#include <vector>

#include "plancap/cuda/check.h"

namespace sdm::plancap::cuda {
namespace {

struct Idle {
  std::mutex mutex;
  std::map<int, std::vector<CUstream>> streams;  // by device
};

// Never destroyed: a stream may come back while the process ends.
Idle& idle() {
  static Idle* const instance = new Idle;
  return *instance;
}

}  // namespace

PrivateStream::PrivateStream(const DeviceInfo& device) : device_(device.index) {
  {
    const std::lock_guard lock(idle().mutex);
    std::vector<CUstream>& streams = idle().streams[device_];
    if (!streams.empty()) {
      stream_ = streams.back();
      streams.pop_back();
      return;
    }
    streams.reserve(64);  // coming back must not fail
  }
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  check(driver().stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate", device.name,
        ": ");
}

PrivateStream::~PrivateStream() {
  const std::lock_guard lock(idle().mutex);
  std::vector<CUstream>& streams = idle().streams[device_];
  if (streams.size() < streams.capacity()) streams.push_back(stream_);
}

}  // namespace sdm::plancap::cuda
