#include "plancap/cuda/cuda_backend.h"

#include "plancap/cuda/cuda_sink.h"
#include "plancap/cuda/executor.h"
#include "plancap/cuda/launch_window.h"
#include "plancap/cuda/prepared_launch.h"
#include "plancap/run/backends.h"

namespace sdm::plancap::cuda {
namespace {

class CudaBackend : public DeviceBackend {
 public:
  std::string unavailable() const override {
    if (!driver_unavailable().empty()) return driver_unavailable();
    int count = 0;
    const CUresult result = driver().device_count(&count);
    return result == CUDA_SUCCESS && count > 0 ? "" : "the CUDA driver finds no device";
  }

  Target target(Device device) const override { return target_of(device_info(device.index)); }

  std::unique_ptr<Sink> stream_sink(Device device, void* stream) const override {
    return std::make_unique<CudaStreamSink>(device_info(device.index),
                                            static_cast<CUstream>(stream));
  }

  ImageHash find_image(const Launch& launch, const Target& target) const override {
    return cuda::find_image(launch, target);
  }

  std::shared_ptr<const BackendLaunch> prepare(const Plan& plan, Device device) const override {
    return cuda::prepare(plan, device.index);
  }

  void run(const Chain& chain, void* stream, void* blas_handle, Windows windows) const override {
    cuda::run_chain(chain, static_cast<CUstream>(stream), blas_handle, windows);
  }

  std::shared_ptr<BackendWindow> make_window() const override {
    return std::make_shared<SharedWindow>();
  }
};

}  // namespace

void register_backend() {
  static const CudaBackend backend;
  register_cuda(backend);
}

}  // namespace sdm::plancap::cuda
