// The kinds of GPU that this build has routes for, and what they allow.
#pragma once
#include <cstdint>
#include <string>

namespace sdm::plancap::cuda {

struct DeviceProfile {
  const char* name;  // "modern", "a100" or "rtx"
  int capability_major;
  int capability_minor;
  uint32_t shared_bytes_optin;  // the most dynamic shared memory a block may ask for
  bool supports_pdl;            // programmatic dependent launch
  bool forced = false;          // another device's profile: run its PTX, not this device's code
};

// The profile of a device. Throws kCuda, naming what is supported, for any other device.
DeviceProfile find_profile(const std::string& device, int major, int minor,
                           uint32_t shared_bytes_optin);

// For tests: what a device of `own` profile runs as when the environment variable
// SDM_DEVICE_PROFILE names another profile, such as "a100": the portable route, compiled from that
// capability's PTX. Throws kCuda for an unknown name or one that the device cannot stand in for.
DeviceProfile force_profile(const DeviceProfile& own, const std::string& name);

}  // namespace sdm::plancap::cuda
