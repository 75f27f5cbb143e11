// Where device functions are: the build's table (device_table.h) and the image files beside the
// extension, each checked against its hash in the table before it is used.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "plancap/base/sha256.h"

namespace sdm::plancap::cuda {

struct CodeEntry {
  std::string name;    // the device function
  std::string kernel;  // whose parameter block it takes
  std::string file;    // the image that holds it
  Sha256 sha256{};     // of that file
  bool waits = false;  // it waits for the grids before it, so it may be launched early
};

// Throws kCuda when no image of this build holds the entry.
const CodeEntry& find_code(std::string_view entry);

// The bytes of the entry's image. Throws kCuda when the file is missing or is not the one that the
// table was made from.
std::vector<std::byte> read_image(const CodeEntry& entry);

// For tests with a stand-in driver: looks in `folder`, for these entries alone. Call it before the
// first CUDA plan is made.
void replace_code(std::string folder, std::vector<CodeEntry> entries);

}  // namespace sdm::plancap::cuda
