#include "plancap/cuda/device_profile.h"

#include "plancap/base/error.h"

namespace sdm::plancap::cuda {
namespace {

constexpr uint32_t kModernShared = 232448;  // 227 KiB
constexpr uint32_t kA100Shared = 166912;    // 163 KiB
constexpr uint32_t kRtxShared = 101376;     // 99 KiB

// In the order of preference: the first row of a name stands for it when a test forces it.
constexpr DeviceProfile kProfiles[] = {
    {"modern", 9, 0, kModernShared, true},  {"modern", 10, 0, kModernShared, true},
    {"modern", 10, 3, kModernShared, true}, {"a100", 8, 0, kA100Shared, false},
    {"rtx", 8, 6, kRtxShared, false},       {"rtx", 8, 9, kRtxShared, false},
    {"rtx", 12, 0, kRtxShared, false},
};

}  // namespace

DeviceProfile find_profile(const std::string& device, int major, int minor,
                           uint32_t shared_bytes_optin) {
  for (const DeviceProfile& profile : kProfiles) {
    if (profile.capability_major == major && profile.capability_minor == minor &&
        profile.shared_bytes_optin <= shared_bytes_optin) {
      return profile;
    }
  }
  std::string supported;
  for (const DeviceProfile& profile : kProfiles) {
    supported += cat(supported.empty() ? "" : ", ", profile.capability_major, ".",
                     profile.capability_minor, " (", profile.name, ", ", profile.shared_bytes_optin,
                     " bytes of shared memory a block)");
  }
  throw Error(ErrorKind::kCuda, cat(device, ": expected a GPU of compute capability ", supported,
                                    ", got ", major, ".", minor, " with ", shared_bytes_optin));
}

DeviceProfile force_profile(const DeviceProfile& own, const std::string& name) {
  if (name == own.name) return own;
  for (DeviceProfile profile : kProfiles) {
    if (name != profile.name) continue;
    if (profile.capability_major > own.capability_major ||
        profile.shared_bytes_optin > own.shared_bytes_optin) {
      throw Error(ErrorKind::kCuda,
                  cat("SDM_DEVICE_PROFILE: a GPU of profile ", own.name, " cannot run as ", name));
    }
    profile.forced = true;
    return profile;
  }
  throw Error(ErrorKind::kCuda,
              cat("SDM_DEVICE_PROFILE: expected modern, a100 or rtx, got '", name, "'"));
}

}  // namespace sdm::plancap::cuda
