// Runs device code on the CPU, block by block.
#pragma once
#include <cstdint>
#include <functional>

namespace emulation {

struct Grid {
  uint32_t x, y, z;
  uint32_t block_x, block_y, block_z;
  uint32_t shared_bytes;
  bool backwards;  // the last block first
};

// `body` is what one thread does. Throws std::runtime_error for what a GPU would not survive.
void run_grid(const Grid& grid, const std::function<void()>& body);

}  // namespace emulation
