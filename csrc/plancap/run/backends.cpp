#include "plancap/run/backends.h"

#include "plancap/base/error.h"

#ifdef SDM_WITH_CUDA
#include "plancap/cuda/cuda_sink.h"
#include "plancap/cuda/executor.h"
#include "plancap/cuda/launch_window.h"
#include "plancap/cuda/prepared_launch.h"
#endif

namespace sdm::plancap {

#ifdef SDM_WITH_CUDA

std::string cuda_unavailable() {
  if (!cuda::driver_unavailable().empty()) return cuda::driver_unavailable();
  int count = 0;
  const CUresult result = cuda::driver().device_count(&count);
  return result == CUDA_SUCCESS && count > 0 ? "" : "the CUDA driver finds no device";
}

Target make_target(Device device) {
  if (device.kind == DeviceKind::kHost) return Target{};
  return cuda::target_of(cuda::device_info(device.index));
}

std::unique_ptr<Sink> make_stream_sink(Device device, void* stream) {
  if (device.kind == DeviceKind::kHost) return std::make_unique<HostSink>();
  return std::make_unique<cuda::CudaStreamSink>(cuda::device_info(device.index),
                                                static_cast<CUstream>(stream));
}

ImageHash find_image(const Launch& launch, const Target& target) {
  return target.backend == Backend::kCuda ? cuda::find_image(launch, target) : ImageHash{};
}

std::shared_ptr<const cuda::PreparedLaunch> prepare_launch(const Plan& plan, Device device) {
  return cuda::prepare(plan, device.index);
}

void run_chain(const Chain& chain, void* stream, void* blas_handle, Windows windows) {
  if (chain.backend() == Backend::kHost) return chain.run_host();
  cuda::run_chain(chain, static_cast<CUstream>(stream), blas_handle, windows);
}

std::shared_ptr<cuda::SharedWindow> make_shared_window() {
  return std::make_shared<cuda::SharedWindow>();
}

#else

namespace {

[[noreturn]] void refuse_cuda(Device device) {
  throw Error(ErrorKind::kCuda, cat(device_name(device), ": ", cuda_unavailable()));
}

}  // namespace

std::string cuda_unavailable() {
  return "this build is host-only: nvcc was not found when it was built, or SDM_CUDA was OFF";
}

Target make_target(Device device) {
  if (device.kind != DeviceKind::kHost) refuse_cuda(device);
  return Target{};
}

std::unique_ptr<Sink> make_stream_sink(Device device, void*) {
  if (device.kind != DeviceKind::kHost) refuse_cuda(device);
  return std::make_unique<HostSink>();
}

ImageHash find_image(const Launch&, const Target& target) {
  if (target.backend == Backend::kCuda) refuse_cuda(target.device);
  return {};
}

std::shared_ptr<const cuda::PreparedLaunch> prepare_launch(const Plan&, Device device) {
  refuse_cuda(device);
}

void run_chain(const Chain& chain, void*, void*, Windows) {
  if (chain.backend() != Backend::kHost) refuse_cuda(chain.device());
  chain.run_host();
}

std::shared_ptr<cuda::SharedWindow> make_shared_window() { return nullptr; }

#endif

}  // namespace sdm::plancap
