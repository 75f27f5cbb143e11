// What plans and chains ask of CUDA devices. The folder cuda/ implements it and a build with CUDA
// registers it when the extension loads (backends.h), so that nothing here includes CUDA.
#pragma once
#include <memory>
#include <string>

#include "plancap/capture/sink.h"
#include "plancap/run/chain.h"

namespace sdm::plancap {

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // Empty when CUDA plans can be made here, else why not.
  virtual std::string unavailable() const = 0;

  // Each of these throws kCuda for a device that cannot be used. The devices are CUDA devices, the
  // plans and chains are of the CUDA backend.
  virtual Target target(Device device) const = 0;
  virtual std::unique_ptr<Sink> stream_sink(Device device, void* stream) const = 0;

  // As plancap::find_image, prepare_launch, run_chain and make_shared_window.
  virtual ImageHash find_image(const Launch& launch, const Target& target) const = 0;
  virtual std::shared_ptr<const BackendLaunch> prepare(const Plan& plan, Device device) const = 0;
  virtual void run(const Chain& chain, void* stream, void* blas_handle, Windows windows) const = 0;
  virtual std::shared_ptr<BackendWindow> make_window() const = 0;
};

}  // namespace sdm::plancap
