#include "plancap/cuda/device_code.h"

#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "plancap/device_table.h"
#include "plancap/error.h"

namespace sdm::plancap::cuda {
namespace {

struct Code {
  std::string folder;
  std::vector<CodeEntry> entries;
};

// The images are package data, in the folder "device" beside the extension.
std::string package_folder() {
  Dl_info info{};
  SDM_INTERNAL_CHECK(dladdr(reinterpret_cast<const void*>(&package_folder), &info),
                     "the extension does not find its own file");
  return (std::filesystem::absolute(info.dli_fname).parent_path() / "device").string();
}

Code built_code() {
  Code code{package_folder(), {}};
  for (const DeviceEntry& entry : device_entries()) {
    const DeviceImage& image = device_images()[entry.image];
    code.entries.push_back({entry.name, entry.kernel, image.file, image.sha256, entry.waits});
  }
  return code;
}

Code& code() {
  static Code instance = built_code();
  return instance;
}

// Through stdio, not streams: see cat() in error.h.
std::vector<std::byte> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) throw Error(ErrorKind::kCuda, cat("device image ", path, ": cannot be opened"));
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  if (std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
    throw Error(ErrorKind::kCuda, cat("device image ", path, ": cannot be read"));
  }
  return bytes;
}

}  // namespace

const CodeEntry& find_code(std::string_view entry) {
  for (const CodeEntry& known : code().entries) {
    if (known.name == entry) return known;
  }
  throw Error(ErrorKind::kCuda, cat("no device image of this build holds the function '", entry,
                                    "' (", code().entries.size(), " functions are known)"));
}

std::vector<std::byte> read_image(const CodeEntry& entry) {
  const std::string path = (std::filesystem::path(code().folder) / entry.file).string();
  const std::vector<std::byte> bytes = read_file(path);
  const Sha256 hash = sha256(bytes);
  if (hash != entry.sha256) {
    throw Error(ErrorKind::kCuda,
                cat("device image ", path, ": expected SHA-256 ", hex_text(entry.sha256), ", got ",
                    hex_text(hash), ": it belongs to another build than the extension"));
  }
  return bytes;
}

void replace_code(std::string folder, std::vector<CodeEntry> entries) {
  code() = {std::move(folder), std::move(entries)};
}

}  // namespace sdm::plancap::cuda
