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
  // Programmatic only where the launcher's caller has vouched for what runs before it on the
  // stream; the step launchers never ask for it outside a plan.
  const PreparedLaunch prepared = prepare(device_, launch.entry, *launch.kernel, launch.config);
  const CUlaunchConfig config = prepared.config_on(stream_);
  const auto* block = static_cast<const std::byte*>(launch.params);
  std::vector<std::byte> params(block, block + launch.kernel->param_bytes);
  if (launch.kernel->finish) launch.kernel->finish(params.data());
  void* arguments[] = {params.data()};
  const ContextGuard context(device_);
  check(driver().launch(&config, prepared.kernel->function, arguments, nullptr), "cuLaunchKernelEx",
        "[", launch.kernel->name, "] ", launch.entry, ": ");
  count_launches(1);
}

}  // namespace sdm::plancap::cuda
