#include "plancap/cuda/check.h"

namespace sdm::plancap::cuda {

std::string describe_failure(const char* call, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver().error_name(result, &name);
  driver().error_string(result, &text);
  return cat(call, ": ", name ? name : "unknown error", " (", int{result}, "), ",
             text ? text : "no description");
}

}  // namespace sdm::plancap::cuda
