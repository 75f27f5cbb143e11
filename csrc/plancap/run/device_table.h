// What the build knows of its device code: the images (one fatbin a file, package data under
// sdm_runtime/device) and the device functions in them. The table is generated in the build tree by
// tools/dev/device_table.py from the compiled code; a build without nvcc has an empty one.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sdm::plancap {

struct DeviceImage {
  const char* file;  // "gx_pa2_bf16_bf16_bf16_c8.fatbin"
  uint64_t bytes;
  std::array<uint8_t, 32> sha256;  // of the file
};

struct DeviceEntry {
  const char* name;    // the extern "C" function: "gx_pa2_bf16_bf16_bf16_c8"
  const char* kernel;  // whose parameter block it takes: "gx_pa2"
  uint32_t image;      // index into device_images()
  bool waits;  // its code for compute capability 9.0 and later waits for the grids before it
};

std::span<const DeviceImage> device_images();
std::span<const DeviceEntry> device_entries();

// Null when no image holds an entry of this name.
const DeviceEntry* find_device_entry(std::string_view name);

}  // namespace sdm::plancap
