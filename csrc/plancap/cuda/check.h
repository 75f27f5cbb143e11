// Driver errors as exceptions: the call, the error's name, number and text, and where it happened.
#pragma once
#include <string>

#include "plancap/base/error.h"
#include "plancap/cuda/driver.h"

namespace sdm::plancap::cuda {

// "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (1), invalid argument". Says so when no later call
// can succeed either.
std::string describe_failure(const char* call, CUresult result);

// kMemory for want of memory, else kCuda.
ErrorKind kind_of_failure(CUresult result);

// Whether the driver refused something.
inline bool is_driver_failure(const Error& error) {
  return error.kind() == ErrorKind::kCuda || error.kind() == ErrorKind::kMemory;
}

// Throws kCuda or kMemory unless the call succeeded; `where` is only put together then.
template <typename... Where>
void check(CUresult result, const char* call, const Where&... where) {
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  throw Error(kind_of_failure(result), cat(where..., describe_failure(call, result)));
}

}  // namespace sdm::plancap::cuda
