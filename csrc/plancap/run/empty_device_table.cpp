// The device table of a build that compiles no device code.
#include "plancap/run/device_table.h"

namespace sdm::plancap {

std::span<const DeviceImage> device_images() { return {}; }

std::span<const DeviceEntry> device_entries() { return {}; }

const DeviceEntry* find_device_entry(std::string_view) { return nullptr; }

}  // namespace sdm::plancap
