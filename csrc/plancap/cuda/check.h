// Driver errors as exceptions: the call, the error's name, number and text, and where it happened.
#pragma once
#include <string>

#include "plancap/cuda/driver.h"
#include "plancap/error.h"

namespace sdm::plancap::cuda {

// "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (1), invalid argument".
std::string describe_failure(const char* call, CUresult result);

// Throws kCuda unless the call succeeded; `where` is only put together then.
template <typename... Where>
void check(CUresult result, const char* call, const Where&... where) {
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  throw Error(ErrorKind::kCuda, cat(where..., describe_failure(call, result)));
}

}  // namespace sdm::plancap::cuda
