#include "bindings/bindings.h"
#ifdef SDM_WITH_CUDA
#include "plancap/cuda/device.h"
#endif

namespace py = pybind11;

namespace sdm::bindings {
namespace {

// What the runtime knows of a CUDA device; asks the driver once per device.
py::dict device_profile(int index) {
  py::dict profile;
#ifdef SDM_WITH_CUDA
  const plancap::cuda::DeviceInfo& device = plancap::cuda::device_info(index);
  profile["name"] = device.profile.name;
  profile["capability"] =
      py::make_tuple(device.profile.capability_major, device.profile.capability_minor);
  profile["sm_count"] = device.sm_count;
  profile["shared_bytes_optin"] = device.profile.shared_bytes_optin;
  profile["pdl"] = device.profile.supports_pdl;
  profile["forced"] = device.profile.forced;
  profile["uuid"] = plancap::cuda::uuid_text(device.uuid);
#else
  plancap::make_target({DeviceKind::kCuda, index});  // throws: it says why there is none
#endif
  return profile;
}

}  // namespace

void bind_devices(py::module_& module) { module.def("device_profile", &device_profile); }

}  // namespace sdm::bindings
