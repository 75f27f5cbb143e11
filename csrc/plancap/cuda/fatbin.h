// Just enough of the fat binary container to take one PTX out of it. The driver always prefers
// machine code made for its device, so a test that runs a portable route on a newer GPU must hand
// it an image that holds nothing but the portable PTX.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sdm::plancap::cuda {

// A fat binary with only the newest PTX of `image` that runs on `capability` (80 for 8.0). Throws
// kCuda, naming `file`, when the image is no fat binary or holds no such PTX.
std::vector<std::byte> keep_ptx(std::span<const std::byte> image, uint32_t capability,
                                const std::string& file);

}  // namespace sdm::plancap::cuda
