// CRC-32 as zlib computes it, so that Python can check a plan with its standard library alone.
// Eight bytes at a time over eight tables: table k advances a byte's remainder past k more bytes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sdm::plancap {

using Crc32Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Crc32Tables make_crc32_tables() {
  Crc32Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
    tables[0][byte] = value;
  }
  for (int k = 1; k < 8; ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = tables[0][before & 0xff] ^ before >> 8;
    }
  }
  return tables;
}

inline uint32_t crc32(std::span<const std::byte> bytes) {
  static constexpr Crc32Tables tables = make_crc32_tables();
  uint32_t value = ~0u;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    word ^= value;
    value = 0;
    for (int k = 0; k < 8; ++k) value ^= tables[7 - k][word >> (8 * k) & 0xff];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    value = tables[0][(value ^ static_cast<uint8_t>(byte)) & 0xff] ^ value >> 8;
  }
  return ~value;
}

}  // namespace sdm::plancap
