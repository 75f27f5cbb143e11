#include "plancap/cuda/cuda_sink.h"

#include "plancap/cuda/check.h"
#include "plancap/cuda/instruments.h"
#include "plancap/cuda/prepared_launch.h"

namespace sdm::plancap::cuda {

CudaStreamSink::CudaStreamSink(const DeviceInfo& device, CUstream stream)
    : device_(device), target_(target_of(device)), stream_(stream) {}

void CudaStreamSink::launch(const Launch& launch) {
  SDM_EXPECT(!launch.library, kValue, launch.kernel->name, "launch", "a plan", "a single launch");
  if (launch.config.grid.volume() == 0) return;
  find_image(launch, target_);  // for its checks
  LaunchConfig geometry = launch.config;
  // Nothing says what the kernel before it on the stream still writes: it is never launched early.
  geometry.programmatic = false;
  const PreparedLaunch prepared = prepare(device_, launch.entry, *launch.kernel, geometry);
  const CUlaunchConfig config = prepared.launch_config(stream_);
  void* arguments[] = {const_cast<void*>(launch.params)};
  const ContextGuard context(device_);
  check(driver().launch(&config, prepared.kernel->function, arguments, nullptr), "cuLaunchKernelEx",
        "[", launch.kernel->name, "] ", launch.entry, ": ");
  count_launches(1);
}

}  // namespace sdm::plancap::cuda
