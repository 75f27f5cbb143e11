// How the runtime finds the driver's functions.
#include <dlfcn.h>

#include "fake_state.h"

extern "C" CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                        cuuint64_t, CUdriverProcAddressQueryResult* status) {
  FAKE_CALL(cuGetProcAddress);
  *function = nullptr;
  if (version > 13000) return CUDA_ERROR_INVALID_VALUE;
  void* self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  // The newest signature has the highest suffix, as in cuda.h.
  for (const char* suffix : {"_v3", "_v2", ""}) {
    if (!*function) *function = dlsym(self, (std::string(symbol) + suffix).c_str());
  }
  *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
