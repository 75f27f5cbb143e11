#include "plancap/cuda/driver.h"

#include <dlfcn.h>

#include "plancap/base/error.h"

namespace sdm::plancap::cuda {
namespace {

struct Loaded {
  Driver table;
  std::string failure;
};

using GetProcAddress = decltype(&::cuGetProcAddress);

// The highest version in SDM_CUDA_FUNCTIONS, for the message only.
constexpr const char* kOldestDriver = "12.4";

Loaded load() {
  Loaded loaded;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    loaded.failure = cat("no CUDA driver here: ", dlerror());
    return loaded;
  }
  const auto find = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (!find) {
    loaded.failure = cat("the CUDA driver has no cuGetProcAddress_v2: expected CUDA ",
                         kOldestDriver, " or later");
    return loaded;
  }
#define SDM_CUDA_FIND(member, function, version)                                        \
  {                                                                                     \
    void* found = nullptr;                                                              \
    CUdriverProcAddressQueryResult status{};                                            \
    const CUresult result =                                                             \
        find(#function, &found, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);   \
    if (result != CUDA_SUCCESS || !found) {                                             \
      loaded.failure = cat("the CUDA driver has no " #function " of version ", version, \
                           ": expected CUDA ", kOldestDriver, " or later");             \
      return loaded;                                                                    \
    }                                                                                   \
    loaded.table.member = reinterpret_cast<decltype(loaded.table.member)>(found);       \
  }
  SDM_CUDA_FUNCTIONS(SDM_CUDA_FIND)
#undef SDM_CUDA_FIND
  const CUresult result = loaded.table.init(0);
  if (result != CUDA_SUCCESS) {
    const char* name = "unknown error";
    loaded.table.error_name(result, &name);
    loaded.failure = cat("cuInit failed: ", name, " (", int{result}, ")");
  }
  return loaded;
}

const Loaded& loaded() {
  static const Loaded state = load();
  return state;
}

}  // namespace

const Driver& driver() {
  const Loaded& state = loaded();
  if (!state.failure.empty()) throw Error(ErrorKind::kCuda, state.failure);
  return state.table;
}

const std::string& driver_unavailable() { return loaded().failure; }

}  // namespace sdm::plancap::cuda
