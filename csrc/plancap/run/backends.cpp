#include "plancap/run/backends.h"

#include "plancap/base/error.h"

namespace sdm::plancap {
namespace {

// CUDA in a build that has none.
class NoCuda : public DeviceBackend {
 public:
  std::string unavailable() const override {
    return "this build is host-only: nvcc was not found when it was built, or SDM_CUDA was OFF";
  }
  Target target(Device device) const override { refuse(device); }
  std::unique_ptr<Sink> stream_sink(Device device, void*) const override { refuse(device); }
  ImageHash find_image(const Launch&, const Target& target) const override {
    refuse(target.device);
  }
  std::shared_ptr<const BackendLaunch> prepare(const Plan&, Device device) const override {
    refuse(device);
  }
  void run(const Chain& chain, void*, void*, Windows) const override { refuse(chain.device()); }
  std::shared_ptr<BackendWindow> make_window() const override { return nullptr; }

 private:
  [[noreturn]] void refuse(Device device) const {
    throw Error(ErrorKind::kCuda, cat(device_name(device), ": ", unavailable()));
  }
};

const DeviceBackend*& registered() {
  static const NoCuda no_cuda;
  static const DeviceBackend* backend = &no_cuda;
  return backend;
}

const DeviceBackend& cuda() { return *registered(); }

}  // namespace

void register_cuda(const DeviceBackend& backend) { registered() = &backend; }

std::string cuda_unavailable() { return cuda().unavailable(); }

Target make_target(Device device) {
  return device.kind == DeviceKind::kHost ? Target{} : cuda().target(device);
}

std::unique_ptr<Sink> make_stream_sink(Device device, void* stream) {
  if (device.kind == DeviceKind::kHost) return std::make_unique<HostSink>();
  return cuda().stream_sink(device, stream);
}

ImageHash find_image(const Launch& launch, const Target& target) {
  return target.backend == Backend::kHost ? ImageHash{} : cuda().find_image(launch, target);
}

std::shared_ptr<const BackendLaunch> prepare_launch(const Plan& plan, Device device) {
  return cuda().prepare(plan, device);
}

void run_chain(const Chain& chain, void* stream, void* blas_handle, Windows windows) {
  if (chain.backend() == Backend::kHost) return chain.run_host();
  cuda().run(chain, stream, blas_handle, windows);
}

std::shared_ptr<BackendWindow> make_shared_window() { return cuda().make_window(); }

}  // namespace sdm::plancap
