// A plan's launch with everything the driver needs but the stream and the parameters: made when the
// plan is bound, so that a run loads, allocates and asks nothing.
#pragma once
#include <array>

#include "plancap/cuda/module_cache.h"
#include "plancap/run/bound_plan.h"

namespace sdm::plancap::cuda {

struct PreparedLaunch : BackendLaunch {
  const DeviceInfo* device = nullptr;
  const DeviceKernel* kernel = nullptr;  // null for a library call or an empty grid
  LaunchConfig config;
  std::array<CUlaunchAttribute, 2> attributes{};
  uint32_t num_attributes = 0;  // the programmatic one, if any, is the last

  // How many of them a launch carries that may (or may not) start early.
  uint32_t attribute_count(bool programmatic) const {
    return num_attributes - (config.programmatic && !programmatic ? 1 : 0);
  }

  // The driver's launch configuration; it points into this object.
  CUlaunchConfig config_on(CUstream stream) const;
};

// What prepare() made for a plan that is bound.
inline const PreparedLaunch& prepared(const BoundPlan& bound) {
  return static_cast<const PreparedLaunch&>(*bound.prepared());
}

// Grid, block and shared memory, into a CUlaunchConfig or a CUDA_KERNEL_NODE_PARAMS: both name them
// alike.
template <typename Params>
void put_sizes(const LaunchConfig& config, Params& params) {
  params.gridDimX = config.grid.x;
  params.gridDimY = config.grid.y;
  params.gridDimZ = config.grid.z;
  params.blockDimX = config.block.x;
  params.blockDimY = config.block.y;
  params.blockDimZ = config.block.z;
  params.sharedMemBytes = config.shared_bytes;
}

// Loads the plan's device function for operands on cuda:index. Throws kPlan when the plan was
// recorded for another device or another image than this build's.
std::shared_ptr<const PreparedLaunch> prepare(const Plan& plan, int index);

// The same for a launch that is not recorded.
PreparedLaunch prepare(const DeviceInfo& device, const std::string& entry, const KernelInfo& kernel,
                       const LaunchConfig& config);

// The hash of the image that holds the launch's device function (zero for a library call). Throws
// kValue for a programmatic launch that the target or the function cannot do.
ImageHash find_image(const Launch& launch, const Target& target);

}  // namespace sdm::plancap::cuda
