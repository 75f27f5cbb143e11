// The backends of this build: the host, and CUDA where one is registered.
#pragma once
#include <memory>
#include <string>

#include "plancap/capture/sink.h"
#include "plancap/run/chain.h"
#include "plancap/run/device_backend.h"

namespace sdm::plancap {

// Once, when the extension loads, before anything below is called. `backend` lives as long as the
// process. Without it, what needs a CUDA device says that this build is host-only.
void register_cuda(const DeviceBackend& backend);

// Empty when CUDA plans can be made here, else why not.
std::string cuda_unavailable();

// What a launcher must know of a device. Throws kCuda for a CUDA device that cannot be used.
Target make_target(Device device);

// A sink that launches at once: on the host, or on a stream (a CUstream) of a CUDA device.
std::unique_ptr<Sink> make_stream_sink(Device device, void* stream);

// The SHA-256 of the image that holds the launch's device function, zero on the host. Throws kValue
// for a launch that the target or the function cannot do, kCuda for a function that no image holds.
ImageHash find_image(const Launch& launch, const Target& target);

// Loads a CUDA plan's device function for `device` and lets it ask for what the plan launches it
// with. Throws kPlan for a plan of another device or image, kCuda when loading fails.
std::shared_ptr<const BackendLaunch> prepare_launch(const Plan& plan, Device device);

// Runs every step of a chain, on the host or on a stream of the chain's device. `blas_handle` is a
// cublasHandle_t set to that stream; only library steps need one.
void run_chain(const Chain& chain, void* stream, void* blas_handle, Windows windows);

// What the chains of one recording on a CUDA device share.
std::shared_ptr<BackendWindow> make_shared_window();

}  // namespace sdm::plancap
