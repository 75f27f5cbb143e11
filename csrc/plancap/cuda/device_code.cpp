#include "plancap/cuda/device_code.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "plancap/base/error.h"
#include "plancap/run/device_table.h"

namespace sdm::plancap::cuda {
namespace {

struct Code {
  std::string folder;
  std::vector<CodeEntry> entries;  // by name
};

Code make_code(std::string folder, std::vector<CodeEntry> entries) {
  std::ranges::sort(entries, {}, &CodeEntry::name);
  return {std::move(folder), std::move(entries)};
}

// The images are package data, in the folder "device" beside the extension.
std::string package_folder() {
  Dl_info info{};
  SDM_INTERNAL_CHECK(dladdr(reinterpret_cast<const void*>(&package_folder), &info),
                     "the extension does not find its own file");
  return (std::filesystem::absolute(info.dli_fname).parent_path() / "device").string();
}

Code built_code() {
  std::vector<CodeEntry> entries;
  for (const DeviceEntry& entry : device_entries()) {
    const DeviceImage& image = device_images()[entry.image];
    entries.push_back({entry.name, entry.kernel, image.file, image.sha256, entry.waits});
  }
  return make_code(package_folder(), std::move(entries));
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
  const std::vector<CodeEntry>& entries = code().entries;
  const auto known = std::ranges::lower_bound(entries, entry, {}, &CodeEntry::name);
  if (known != entries.end() && known->name == entry) return *known;
  throw Error(ErrorKind::kCuda, cat("no device image of this build holds the function '", entry,
                                    "' (", entries.size(), " functions are known)"));
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
  code() = make_code(std::move(folder), std::move(entries));
}

}  // namespace sdm::plancap::cuda
