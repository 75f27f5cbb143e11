#include "plancap/cuda/prepared_launch.h"

#include <algorithm>

#include "plancap/base/error.h"

namespace sdm::plancap::cuda {
namespace {

std::string capability_text(int major, int minor) { return cat(major, ".", minor); }

void expect_device(const Plan& plan, const DeviceInfo& device) {
  const PlanHeader& header = plan.header();
  std::array<uint8_t, 16> uuid;
  std::copy(std::begin(header.device_uuid), std::end(header.device_uuid), uuid.begin());
  const bool same = uuid == device.uuid &&
                    header.capability_major == device.profile.capability_major &&
                    header.capability_minor == device.profile.capability_minor;
  if (same) return;
  throw Error(
      ErrorKind::kPlan,
      cat("[", plan.kernel_name(), "] bind: expected operands on the plan's device ",
          uuid_text(uuid), " (compute capability ",
          capability_text(header.capability_major, header.capability_minor), "), got ", device.name,
          ", ", uuid_text(device.uuid), " (",
          capability_text(device.profile.capability_major, device.profile.capability_minor), ")"));
}

void expect_image(const Plan& plan) {
  const CodeEntry& code = find_code(plan.entry());
  Sha256 recorded;
  std::copy(std::begin(plan.header().image_hash), std::end(plan.header().image_hash),
            recorded.begin());
  if (recorded == code.sha256) return;
  throw Error(ErrorKind::kPlan,
              cat("[", plan.kernel_name(), "] bind: the plan was recorded with device image ",
                  hex_text(recorded), ", this build's ", code.file, " is ", hex_text(code.sha256)));
}

// The launcher asked this when the plan was recorded; the file may have been edited since.
void expect_wait(const Plan& plan, const DeviceInfo& device) {
  if (!plan.config().programmatic) return;
  const CodeEntry& code = find_code(plan.entry());
  if (device.profile.supports_pdl && code.waits) return;
  throw Error(ErrorKind::kPlan,
              cat("[", plan.kernel_name(), "] bind: the plan is launched programmatically, but ",
                  code.waits ? cat(device.name, " has no programmatic dependent launch")
                             : cat(code.name, " never waits")));
}

void expect_pdl(const Launch& launch, const CodeEntry& code, const Target& target) {
  const char* kernel = launch.kernel->name;
  SDM_EXPECT(target.supports_pdl, kValue, kernel, "pdl", "False on this device",
             "True (it has no programmatic dependent launch)");
  SDM_EXPECT(code.waits, kValue, kernel, "pdl", cat("False: ", code.name, " never waits"), "True");
}

PreparedLaunch make_prepared(const DeviceInfo& device, const DeviceKernel* kernel,
                             const LaunchConfig& config) {
  PreparedLaunch prepared;
  prepared.device = &device;
  prepared.kernel = kernel;
  prepared.config = config;
  if (config.cluster.volume() > 1) {
    CUlaunchAttribute& cluster = prepared.attributes[prepared.num_attributes++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {config.cluster.x, config.cluster.y, config.cluster.z};
  }
  if (config.programmatic) {
    CUlaunchAttribute& programmatic = prepared.attributes[prepared.num_attributes++];
    programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    programmatic.value.programmaticStreamSerializationAllowed = 1;
  }
  return prepared;
}

}  // namespace

CUlaunchConfig PreparedLaunch::config_on(CUstream stream) const {
  CUlaunchConfig launch{};
  put_sizes(config, launch);
  launch.hStream = stream;
  launch.attrs = const_cast<CUlaunchAttribute*>(attributes.data());
  launch.numAttrs = num_attributes;
  return launch;
}

std::shared_ptr<const PreparedLaunch> prepare(const Plan& plan, int index) {
  const DeviceInfo& device = device_info(index);
  expect_device(plan, device);
  const DeviceKernel* kernel = nullptr;
  if (!plan.library() && !plan.empty()) {
    expect_image(plan);
    expect_wait(plan, device);
    kernel = &load_kernel(device, plan.entry(), plan.kernel(), plan.config());
  }
  return std::make_shared<const PreparedLaunch>(make_prepared(device, kernel, plan.config()));
}

PreparedLaunch prepare(const DeviceInfo& device, const std::string& entry, const KernelInfo& kernel,
                       const LaunchConfig& config) {
  return make_prepared(device, &load_kernel(device, entry, kernel, config), config);
}

ImageHash find_image(const Launch& launch, const Target& target) {
  if (launch.library) return {};
  const CodeEntry& code = find_code(launch.entry);
  SDM_INTERNAL_CHECK(code.kernel == launch.kernel->name, "[", launch.kernel->name,
                     "] launches the device function ", code.name, " of ", code.kernel);
  if (launch.config.programmatic) expect_pdl(launch, code, target);
  return code.sha256;
}

}  // namespace sdm::plancap::cuda
