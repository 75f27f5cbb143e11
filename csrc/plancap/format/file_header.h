// What a plan's and a chain's bytes begin with alike: magic, checksum, format version, sizes.
#pragma once
#include <cstring>
#include <span>

#include "plancap/base/crc32.h"
#include "plancap/base/error.h"
#include "plancap/format/plan_format.h"

namespace sdm::plancap {

// `what` the bytes are to be: "plan" or "chain".
#define SDM_FORMAT_CHECK(what, condition, byte, ...)                                     \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      throw Error(ErrorKind::kPlan, cat(what, ": ", __VA_ARGS__, " (byte ", byte, ")")); \
    }                                                                                    \
  } while (0)

// The header that starts the bytes. Throws kPlan unless they are whole, undamaged and of the format
// that this build writes.
template <typename Header>
Header read_header(const char* what, uint64_t magic, std::span<const std::byte> bytes) {
  SDM_FORMAT_CHECK(what, bytes.size() >= sizeof(Header), bytes.size(), "truncated: ", bytes.size(),
                   " bytes, a header takes ", sizeof(Header));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  SDM_FORMAT_CHECK(what, header.magic == magic, 0, "bad magic: this is not a ", what);
  SDM_FORMAT_CHECK(what, header.version >= 1 && header.oldest_reader <= kFormatVersion,
                   offsetof(Header, version), "unknown version ", header.version,
                   ", this build reads version ", kFormatVersion);
  SDM_FORMAT_CHECK(what, header.total_bytes == bytes.size(), offsetof(Header, total_bytes),
                   "truncated or padded: the header says ", header.total_bytes, " bytes, got ",
                   bytes.size());
  const uint32_t sum = crc32(bytes.subspan(offsetof(Header, version)));
  SDM_FORMAT_CHECK(what, sum == header.checksum, offsetof(Header, checksum),
                   "damaged: checksum is ", header.checksum, ", the bytes give ", sum);
  SDM_FORMAT_CHECK(what, header.version == kFormatVersion && header.oldest_reader == kOldestReader,
                   offsetof(Header, version), "version ", header.version, "/", header.oldest_reader,
                   ", this build reads ", kFormatVersion, "/", kOldestReader);
  SDM_FORMAT_CHECK(what, header.header_bytes == sizeof(Header), offsetof(Header, header_bytes),
                   "header of ", header.header_bytes, " bytes, expected ", sizeof(Header));
  return header;
}

// Writes the header that starts the bytes, with their number and checksum in it; the rest of them
// is as it will be.
template <typename Header>
void seal(Header& header, std::span<std::byte> bytes) {
  header.total_bytes = bytes.size();
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.checksum = crc32(bytes.subspan(offsetof(Header, version)));
  std::memcpy(bytes.data(), &header, sizeof(header));
}

}  // namespace sdm::plancap
