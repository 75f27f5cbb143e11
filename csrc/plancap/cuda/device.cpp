#include "plancap/cuda/device.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "plancap/cuda/check.h"

namespace sdm::plancap::cuda {
namespace {

int attribute(const DeviceInfo& info, CUdevice_attribute which) {
  int value = 0;
  check(driver().device_attribute(&value, which, info.device), "cuDeviceGetAttribute", info.name,
        ": ");
  return value;
}

DeviceInfo ask_device(int index) {
  const Driver& cuda = driver();
  const RelaxedCapture relaxed;
  const std::string where = cat("cuda:", index, ": ");
  DeviceInfo info;
  info.index = index;
  check(cuda.device_get(&info.device, index), "cuDeviceGet", where);
  char name[128] = "";
  check(cuda.device_name(name, sizeof(name), info.device), "cuDeviceGetName", where);
  info.name = cat("cuda:", index, " (", name, ")");
  CUuuid uuid;
  check(cuda.device_uuid(&uuid, info.device), "cuDeviceGetUuid", where);
  static_assert(sizeof(uuid.bytes) == sizeof(info.uuid));
  std::memcpy(info.uuid.data(), uuid.bytes, sizeof(info.uuid));

  info.sm_count = attribute(info, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.shared_bytes_optin =
      static_cast<uint32_t>(attribute(info, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  info.profile = find_profile(
      info.name, attribute(info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
      attribute(info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), info.shared_bytes_optin);
  if (const char* forced = std::getenv("SDM_DEVICE_PROFILE")) {
    info.profile = force_profile(info.profile, forced);
  }
  check(cuda.primary_context_retain(&info.context, info.device), "cuDevicePrimaryCtxRetain", where);
  return info;
}

}  // namespace

const DeviceInfo& device_info(int index) {
  static std::mutex mutex;
  static std::map<int, DeviceInfo> devices;  // a map never moves its values
  const std::lock_guard lock(mutex);
  const auto known = devices.find(index);
  if (known != devices.end()) return known->second;
  return devices.emplace(index, ask_device(index)).first->second;
}

Target target_of(const DeviceInfo& device) {
  Target target;
  target.backend = Backend::kCuda;
  target.device = {DeviceKind::kCuda, device.index};
  target.sm_count = device.sm_count;
  target.capability_major = device.profile.capability_major;
  target.capability_minor = device.profile.capability_minor;
  target.shared_bytes_optin = device.profile.shared_bytes_optin;
  target.supports_pdl = device.profile.supports_pdl;
  target.uuid = device.uuid;
  return target;
}

std::string uuid_text(const std::array<uint8_t, 16>& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

ContextGuard::ContextGuard(const DeviceInfo& device) {
  CUcontext current = nullptr;
  check(driver().context_current(&current), "cuCtxGetCurrent", device.name, ": ");
  if (current == device.context) return;
  check(driver().context_push(device.context), "cuCtxPushCurrent", device.name, ": ");
  pushed_ = true;
}

// A failure to pop cannot be answered here; the next call into the driver reports its cause.
ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  if (pushed_) driver().context_pop(&popped);
}

RelaxedCapture::RelaxedCapture() {
  check(driver().exchange_capture_mode(&mode_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCapture::~RelaxedCapture() { driver().exchange_capture_mode(&mode_); }

}  // namespace sdm::plancap::cuda
