// SHA-256 (FIPS 180-4), so that an image is known by its bytes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sdm::plancap {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::span<const std::byte> bytes);

std::string hex_text(const Sha256& hash);

}  // namespace sdm::plancap
