// The yardstick of host_launch.py: the driver launches of a chain in a bare loop. It loads the
// images itself and patches nothing, so that it shares no code with the executor it is compared to.
//   g++ -O2 -std=c++20 -shared -fPIC -I<CUDA include> bare_launch.cpp -o libbare_launch.so -ldl
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <vector>

namespace {

template <typename Function>
Function find(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function>(dlsym(library, name));
}

struct Launch {
  CUlaunchConfig config{};
  CUlaunchAttribute attribute{};
  CUfunction function = nullptr;
  std::vector<char> params;
};

std::vector<Launch*> launches;

}  // namespace

extern "C" {

// Adds one launch of a step, from a fat binary in memory; 0 when it worked, else the error.
int bare_add(const void* image, const char* entry, const unsigned* geometry, unsigned shared,
             int programmatic, const char* params, int param_bytes, void* stream) {
  auto* launch = new Launch;
  CUlibrary library;
  CUkernel kernel;
  CUresult result = find<decltype(&cuLibraryLoadData)>("cuLibraryLoadData")(
      &library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS) {
    result = find<decltype(&cuLibraryGetKernel)>("cuLibraryGetKernel")(&kernel, library, entry);
  }
  if (result == CUDA_SUCCESS) {
    result = find<decltype(&cuKernelGetFunction)>("cuKernelGetFunction")(&launch->function, kernel);
  }
  if (result == CUDA_SUCCESS && shared > 48 * 1024) {
    result = find<decltype(&cuFuncSetAttribute)>("cuFuncSetAttribute")(
        launch->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        static_cast<int>(shared));
  }
  launch->params.assign(params, params + param_bytes);
  launch->attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  launch->attribute.value.programmaticStreamSerializationAllowed = 1;
  launch->config.gridDimX = geometry[0];
  launch->config.gridDimY = geometry[1];
  launch->config.gridDimZ = geometry[2];
  launch->config.blockDimX = geometry[3];
  launch->config.blockDimY = geometry[4];
  launch->config.blockDimZ = geometry[5];
  launch->config.sharedMemBytes = shared;
  launch->config.hStream = static_cast<CUstream>(stream);
  launch->config.attrs = &launch->attribute;
  launch->config.numAttrs = programmatic ? 1 : 0;
  launches.push_back(launch);
  return result;
}

void bare_clear() {
  for (Launch* launch : launches) delete launch;
  launches.clear();
}

// Launches every added launch, in order, `steps` times; the microseconds it took, or less than 0.
double bare_run(int steps) {
  const auto launch_kernel = find<decltype(&cuLaunchKernelEx)>("cuLaunchKernelEx");
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    for (Launch* launch : launches) {
      void* arguments[] = {launch->params.data()};
      const CUresult result = launch_kernel(&launch->config, launch->function, arguments, nullptr);
      if (result != CUDA_SUCCESS) return -result;
    }
  }
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::micro>(end - begin).count();
}
}
