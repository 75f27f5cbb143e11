// Where the elements of a bf16 operand tile lie in shared memory, as the copy engine writes them
// and as the matrix unit reads them: rows of 64 values (128 bytes), 128-byte swizzle, K along the
// row.
//
// Eight rows make one 1024-byte pattern, and the tile starts at a multiple of 1024. Within it the
// 16-byte piece c of row r lies where piece c ^ (r % 8) would.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

inline constexpr uint32_t kSwizzleRowBytes = 128;
inline constexpr uint32_t kSwizzleColumns = 64;  // bf16 values in a row
inline constexpr uint32_t kSwizzlePatternBytes = 8 * kSwizzleRowBytes;
inline constexpr uint32_t kWgmmaRows = 64;        // M of one wgmma
inline constexpr uint32_t kWgmmaDepth = 16;       // K of one wgmma
inline constexpr uint32_t kWgmmaDepthBytes = 32;  // of one row, in one wgmma

// The copy engine's rule: bits 7..9 of the address are exclusive-ored into bits 4..6.
SDM_HD constexpr uint32_t swizzle_128b(uint32_t address) {
  return address ^ (address >> 3 & 0x70u);
}

// The matrix descriptor of a tile whose first row starts at `address`. The low word: the start in
// units of 16 bytes, and a leading offset that has no meaning in this layout. The high word: the
// distance of eight-row groups in the same units, a base offset of 0 because patterns are aligned,
// and layout 1, the 128-byte swizzle. Only the low word depends on the address.
SDM_HD constexpr uint32_t wgmma_descriptor(uint32_t address) {
  return (address & 0x3ffffu) >> 4 | 1u << 16;
}
inline constexpr uint32_t kWgmmaDescriptorHigh = kSwizzlePatternBytes >> 4 | 1u << 30;

// The descriptor `bytes` further on (a multiple of 16 below 256 KiB: no carry out of the start).
SDM_HD constexpr uint32_t wgmma_advance(uint32_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// The address from which the matrix unit reads element (row, k) of an operand, from the descriptor
// alone: the emulation that the checks below compare with the copy engine's rule.
constexpr uint32_t wgmma_element_address(uint32_t descriptor, uint32_t row, uint32_t k) {
  const uint32_t start = (descriptor & 0x3fff) << 4;
  const uint32_t group_bytes = (kWgmmaDescriptorHigh & 0x3fff) << 4;
  return swizzle_128b(start + row / 8 * group_bytes + row % 8 * kSwizzleRowBytes + 2 * k);
}

// Whether every element of a [rows, 64] tile at `address` is read from where it was written.
constexpr bool wgmma_reads_what_tma_wrote(uint32_t address, uint32_t rows) {
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < kSwizzleColumns; ++column) {
      const uint32_t written = address + swizzle_128b(row * kSwizzleRowBytes + 2 * column);
      const uint32_t step =
          wgmma_advance(wgmma_descriptor(address), column / kWgmmaDepth * kWgmmaDepthBytes);
      if (wgmma_element_address(step, row, column % kWgmmaDepth) != written) return false;
    }
  }
  return true;
}

static_assert(wgmma_reads_what_tma_wrote(0, 64) && wgmma_reads_what_tma_wrote(7 * 1024, 8));
static_assert(!wgmma_reads_what_tma_wrote(512, 8), "only aligned patterns agree");

// The row and the column of accumulator register i of a thread of the warpgroup (D is [64, N]).
SDM_HD constexpr uint32_t wgmma_row(uint32_t thread, uint32_t i) {
  return thread / 32 * 16 + thread % 32 / 4 + (i >> 1 & 1) * 8;
}
SDM_HD constexpr uint32_t wgmma_column(uint32_t thread, uint32_t i) {
  return i / 4 * 8 + thread % 4 * 2 + (i & 1);
}

}  // namespace sdm
