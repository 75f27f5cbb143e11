#include "plancap/cuda/executor.h"

#include "plancap/cuda/check.h"
#include "plancap/cuda/instruments.h"
#include "plancap/cuda/launch_walk.h"

namespace sdm::plancap::cuda {
namespace {

// The driver's handles that are no stream objects: null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
bool is_special(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// One per plan, made before the first launch.
std::vector<CUlaunchConfig> launch_configs(const Chain& chain, CUstream stream) {
  std::vector<CUlaunchConfig> configs;
  for (const auto& bound : chain.plans()) configs.push_back(bound->prepared()->config_on(stream));
  return configs;
}

// The hot loop: nothing here or in walk_launches allocates, locks or asks once the first launch is
// out.
void issue(const Chain& chain, CUstream stream, void* blas_handle) {
  const auto launch_kernel = driver().launch;
  std::vector<CUlaunchConfig> configs = launch_configs(chain, stream);
  walk_launches(chain, [&](const WalkedLaunch& launch) {
    if (!launch.prepared->kernel) {
      const char* failure = launch.bound->plan().kernel().library(launch.params, blas_handle);
      if (!failure) [[likely]]
        return;
      throw Error(ErrorKind::kCuda, launch_place(chain, launch.step, launch.plan) + failure);
    }
    CUlaunchConfig& config = configs[launch.plan];
    config.numAttrs = launch.prepared->attribute_count(launch.programmatic);
    void* arguments[] = {launch.params};
    const CUresult result =
        launch_kernel(&config, launch.prepared->kernel->function, arguments, nullptr);
    if (result != CUDA_SUCCESS) [[unlikely]] {
      check(result, "cuLaunchKernelEx", launch_place(chain, launch.step, launch.plan));
    }
  });
}

}  // namespace

void expect_stream(const Chain& chain, CUstream stream) {
  if (is_special(stream)) return;  // it is whatever device is current, and that is the chain's
  CUcontext context = nullptr;
  check(driver().stream_context(stream, &context), "cuStreamGetCtx", "chain: stream: ");
  const DeviceInfo& device = *chain.plans().front()->prepared()->device;
  if (context == device.context) return;
  CUdevice given = -1;
  check(driver().context_push(context), "cuCtxPushCurrent", "chain: stream: ");
  const CUresult result = driver().context_device(&given);
  driver().context_pop(&context);
  check(result, "cuCtxGetDevice", "chain: stream: ");
  SDM_EXPECT(given == device.device, kValue, "chain", "stream", cat("a stream of ", device.name),
             cat("one of device ", given));
}

void run_chain(const Chain& chain, CUstream stream, void* blas_handle) {
  const ContextGuard context(*chain.plans().front()->prepared()->device);
  expect_stream(chain, stream);
  SDM_EXPECT(blas_handle || !chain.has_library_step(), kValue, "chain", "blas_handle",
             "a cuBLAS handle, for its library step", "none");
  const Range range(chain);
  issue(chain, stream, blas_handle);
  count_launches(chain.launches());
}

}  // namespace sdm::plancap::cuda
