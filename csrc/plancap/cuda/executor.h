// Runs a chain on a stream: per launch it patches the parameters and calls the driver, no more.
// Where the device is faster than such launches, it gets the same launches in windows
// (launch_window.h).
#pragma once
#include "plancap/cuda/driver.h"
#include "plancap/run/chain.h"

namespace sdm::plancap::cuda {

// Issues every step in the chain's order, or captures it when the stream is capturing.
// `blas_handle` is the cublasHandle_t for library steps, already set to this stream; may be null
// without any. Throws kCuda naming the step, the plan and the kernel of the first launch that
// fails; what was issued before it stays issued, and the error says how much that is. A window that
// nobody asked for fails no run.
// Windows::kAlways throws kValue, before anything is issued, for a chain or a stream that cannot.
void run_chain(const Chain& chain, CUstream stream, void* blas_handle, Windows windows);

// Throws kValue when `stream` belongs to another device than the chain.
void expect_stream(const Chain& chain, CUstream stream);

}  // namespace sdm::plancap::cuda
