#include "plancap/cuda/fatbin.h"

#include <cstdint>
#include <cstring>

#include "plancap/base/error.h"

namespace sdm::plancap::cuda {
namespace {

// The container as nvcc 11 to 13 writes it: a header, then one part per target. A part's payload
// may be compressed; it is copied as it is.
struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t body_bytes;
};

struct PartHeader {
  uint16_t kind;  // 1: PTX, 2: machine code
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  uint32_t compressed_bytes;
  uint32_t options_offset;
  uint16_t minor;
  uint16_t major;
  uint32_t capability;
};

constexpr uint32_t kMagic = 0xBA55ED50;
constexpr uint16_t kPtx = 1;

template <typename T>
T read_at(std::span<const std::byte> bytes, size_t at, const std::string& file) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) {
    throw Error(ErrorKind::kCuda, cat("device image ", file, ": truncated at byte ", at));
  }
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

}  // namespace

std::vector<std::byte> keep_ptx(std::span<const std::byte> image, uint32_t capability,
                                const std::string& file) {
  ContainerHeader container = read_at<ContainerHeader>(image, 0, file);
  if (container.magic != kMagic) {
    throw Error(ErrorKind::kCuda, cat("device image ", file, ": no fat binary"));
  }
  // The newest PTX that the capability runs.
  std::span<const std::byte> best;
  uint32_t best_capability = 0;
  for (size_t at = container.header_bytes; at < image.size();) {
    const PartHeader part = read_at<PartHeader>(image, at, file);
    const uint64_t bytes = part.header_bytes + part.payload_bytes;
    if (bytes < sizeof(PartHeader) || bytes > image.size() - at) {
      throw Error(ErrorKind::kCuda, cat("device image ", file, ": damaged at byte ", at));
    }
    if (part.kind == kPtx && part.capability <= capability && part.capability > best_capability) {
      best = image.subspan(at, bytes);
      best_capability = part.capability;
    }
    at += bytes;
  }
  if (best.empty()) {
    throw Error(ErrorKind::kCuda,
                cat("device image ", file, ": holds no PTX for capability ", capability));
  }
  container.body_bytes = best.size();
  std::vector<std::byte> kept(container.header_bytes + best.size());
  std::memcpy(kept.data(), image.data(), container.header_bytes);
  std::memcpy(kept.data(), &container, sizeof(container));
  std::memcpy(kept.data() + container.header_bytes, best.data(), best.size());
  return kept;
}

}  // namespace sdm::plancap::cuda
