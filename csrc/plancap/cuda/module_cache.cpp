#include "plancap/cuda/module_cache.h"

#include <map>
#include <mutex>

#include "plancap/cuda/check.h"
#include "plancap/cuda/fatbin.h"

namespace sdm::plancap::cuda {
namespace {

// Clusters of up to this many blocks run on every device that has clusters.
constexpr uint64_t kPortableCluster = 8;

struct Cache {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, CUlibrary> images;      // by device and file
  std::map<std::pair<int, std::string>, DeviceKernel> kernels;  // by device and entry
};

// Never destroyed: the driver may be gone by the time static objects are.
Cache& cache() {
  static Cache* const instance = new Cache;
  return *instance;
}

CUlibrary load_image(Cache& cache, const DeviceInfo& device, const CodeEntry& code) {
  const auto key = std::make_pair(device.index, code.file);
  if (const auto known = cache.images.find(key); known != cache.images.end()) return known->second;
  std::vector<std::byte> image = read_image(code);
  if (device.profile.forced) {
    const int capability = device.profile.capability_major * 10 + device.profile.capability_minor;
    image = keep_ptx(image, static_cast<uint32_t>(capability), code.file);
  }
  CUlibrary library = nullptr;
  check(driver().library_load(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData", "[", code.name, "] ", code.file, " on ", device.name, ": ");
  cache.images.emplace(key, library);
  return library;
}

int kernel_attribute(const DeviceInfo& device, const DeviceKernel& kernel,
                     CUfunction_attribute which) {
  int value = 0;
  check(driver().kernel_attribute(&value, which, kernel.kernel, device.device),
        "cuKernelGetAttribute", "[", kernel.code->name, "] on ", device.name, ": ");
  return value;
}

void expect_parameters(const DeviceKernel& loaded, const KernelInfo& kernel) {
  // An over-aligned block starts at an offset of its own; launches pass its address, so only its
  // size must agree.
  size_t offset = 0, bytes = 0;
  check(driver().kernel_param_info(loaded.kernel, 0, &offset, &bytes), "cuKernelGetParamInfo", "[",
        loaded.code->name, "] ");
  if (loaded.code->kernel != kernel.name || bytes != kernel.param_bytes) {
    throw Error(
        ErrorKind::kCuda,
        cat("[", loaded.code->name, "] expected the ", kernel.param_bytes, "-byte parameters of ",
            kernel.name, ", the device function takes ", bytes, " bytes of ", loaded.code->kernel));
  }
}

void set_attribute(const DeviceInfo& device, const DeviceKernel& kernel, CUfunction_attribute which,
                   uint32_t value) {
  check(driver().kernel_set_attribute(which, static_cast<int>(value), kernel.kernel, device.device),
        "cuKernelSetAttribute", "[", kernel.code->name, "] on ", device.name, ": attribute ",
        int{which}, " = ", value, ": ");
}

DeviceKernel& load_entry(Cache& cache, const DeviceInfo& device, const std::string& entry,
                         const KernelInfo& kernel) {
  const auto key = std::make_pair(device.index, entry);
  if (const auto known = cache.kernels.find(key); known != cache.kernels.end())
    return known->second;
  DeviceKernel loaded;
  loaded.code = &find_code(entry);
  const CUlibrary library = load_image(cache, device, *loaded.code);
  check(driver().library_kernel(&loaded.kernel, library, entry.c_str()), "cuLibraryGetKernel", "[",
        entry, "] in ", loaded.code->file, " on ", device.name, ": ");
  expect_parameters(loaded, kernel);
  check(driver().kernel_function(&loaded.function, loaded.kernel), "cuKernelGetFunction", "[",
        entry, "] on ", device.name, ": ");
  if (kernel.shared_percent != 0) {
    set_attribute(device, loaded, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                  kernel.shared_percent);
  }
  loaded.static_shared_bytes =
      static_cast<uint32_t>(kernel_attribute(device, loaded, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  loaded.max_threads = static_cast<uint32_t>(
      kernel_attribute(device, loaded, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  loaded.allowed_shared_bytes = static_cast<uint32_t>(
      kernel_attribute(device, loaded, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
  return cache.kernels.emplace(key, loaded).first->second;
}

void allow(const DeviceInfo& device, DeviceKernel& kernel, const LaunchConfig& config) {
  const uint64_t shared = uint64_t{kernel.static_shared_bytes} + config.shared_bytes;
  if (shared > device.profile.shared_bytes_optin || config.block.volume() > kernel.max_threads) {
    throw Error(
        ErrorKind::kCuda,
        cat("[", kernel.code->name, "] on ", device.name, ": expected at most ",
            device.profile.shared_bytes_optin, " bytes of shared memory and ", kernel.max_threads,
            " threads a block, got ", shared, " and ", config.block.volume()));
  }
  if (config.shared_bytes > kernel.allowed_shared_bytes) {
    set_attribute(device, kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                  config.shared_bytes);
    kernel.allowed_shared_bytes = config.shared_bytes;
  }
  if (config.cluster.volume() > kPortableCluster && !kernel.allows_large_clusters) {
    set_attribute(device, kernel, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    kernel.allows_large_clusters = true;
  }
}

}  // namespace

const DeviceKernel& load_kernel(const DeviceInfo& device, const std::string& entry,
                                const KernelInfo& kernel, const LaunchConfig& config) {
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  DeviceKernel& loaded = load_entry(all, device, entry, kernel);
  allow(device, loaded, config);
  return loaded;
}

}  // namespace sdm::plancap::cuda
