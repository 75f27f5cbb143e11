// Launches at once, on a stream.
#pragma once
#include "plancap/capture/sink.h"
#include "plancap/cuda/device.h"

namespace sdm::plancap::cuda {

class CudaStreamSink : public Sink {
 public:
  CudaStreamSink(const DeviceInfo& device, CUstream stream);
  const Target& target() const override { return target_; }
  void launch(const Launch& launch) override;

 private:
  const DeviceInfo& device_;
  Target target_;
  CUstream stream_;
};

}  // namespace sdm::plancap::cuda
