// The one place that knows which backends this build has.
#pragma once
#include <memory>
#include <string>

#include "plancap/chain.h"
#include "plancap/sink.h"

namespace sdm::plancap {

// Empty when CUDA plans can be made here, else why not.
std::string cuda_unavailable();

// What a launcher must know of a device. Throws kCuda for a CUDA device that cannot be used.
Target make_target(Device device);

// A sink that launches at once: on the host, or on a stream (a CUstream) of a CUDA device.
std::unique_ptr<Sink> make_stream_sink(Device device, void* stream);

// Runs every step of a chain, on the host or on a stream of the chain's device.
void run_chain(const Chain& chain, void* stream);

}  // namespace sdm::plancap
