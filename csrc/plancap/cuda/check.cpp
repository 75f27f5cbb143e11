#include "plancap/cuda/check.h"

namespace sdm::plancap::cuda {
namespace {

// Whether the context is lost with the error: every later call in it fails alike.
bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string describe_failure(const char* call, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver().error_name(result, &name);
  driver().error_string(result, &text);
  return cat(call, ": ", name ? name : "unknown error", " (", int{result}, "), ",
             text ? text : "no description",
             is_sticky(result) ? ": the device's context is lost, and no call in this process can "
                                 "use it any more: start a new process"
                               : "");
}

ErrorKind kind_of_failure(CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::kMemory : ErrorKind::kCuda;
}

}  // namespace sdm::plancap::cuda
