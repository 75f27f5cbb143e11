// Streams that nobody else uses. A framework hands the streams of its pool to every caller in turn,
// so that a capture on one of them would take in whatever another thread issues there.
#pragma once
#include "plancap/cuda/device.h"

namespace sdm::plancap::cuda {

// A stream of a device for as long as the object lives. It is then kept for the next one: what an
// allocator knows of a stream must not come to belong to another stream at the same address.
class PrivateStream {
 public:
  // Throws kCuda.
  explicit PrivateStream(const DeviceInfo& device);
  ~PrivateStream();
  PrivateStream(const PrivateStream&) = delete;
  PrivateStream& operator=(const PrivateStream&) = delete;

  CUstream get() const { return stream_; }

 private:
  const int device_;
  CUstream stream_ = nullptr;
};

}  // namespace sdm::plancap::cuda
