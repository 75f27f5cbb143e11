#include "plancap/backends.h"

#include "plancap/error.h"

namespace sdm::plancap {
namespace {

[[noreturn]] void refuse_cuda(Device device) {
  throw Error(ErrorKind::kCuda, cat(device_name(device), ": ", cuda_unavailable()));
}

}  // namespace

std::string cuda_unavailable() {
  return "this build is host-only: nvcc was not found when it was built";
}

Target make_target(Device device) {
  if (device.kind != DeviceKind::kHost) refuse_cuda(device);
  return Target{};
}

std::unique_ptr<Sink> make_stream_sink(Device device, void*) {
  if (device.kind != DeviceKind::kHost) refuse_cuda(device);
  return std::make_unique<HostSink>();
}

void run_chain(const Chain& chain, void*) {
  if (chain.backend() != Backend::kHost) refuse_cuda(chain.device());
  chain.run_host();
}

}  // namespace sdm::plancap
