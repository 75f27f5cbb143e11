// CRC-32 as zlib computes it, so that Python can check a plan with its standard library alone.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sdm::plancap {

constexpr std::array<uint32_t, 256> make_crc32_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
    table[byte] = value;
  }
  return table;
}

inline uint32_t crc32(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> table = make_crc32_table();
  uint32_t value = ~0u;
  for (const std::byte byte : bytes) {
    value = table[(value ^ static_cast<uint8_t>(byte)) & 0xff] ^ value >> 8;
  }
  return ~value;
}

}  // namespace sdm::plancap
