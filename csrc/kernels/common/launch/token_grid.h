// How a kernel with a warp for every token and slice is launched.
#pragma once
#include "kernels/common/rows/gather_shape.h"
#include "plancap/capture/sink.h"

namespace sdm {

// The grid: x = tokens, y = slices; so are the block's z and y. Blocks as large as still leave one
// for every SM, with a token's slices together, as its rows are read. `staged` entries a warp.
inline plancap::LaunchConfig token_config(const GatherShape& shape, int64_t tokens, int32_t hd,
                                          int32_t staged, const plancap::Target& target) {
  const int64_t slices = num_slices(hd);
  int64_t block_warps = 1;
  while (block_warps * kLanes < shape.threads && block_warps * target.sm_count < tokens * slices) {
    block_warps *= 2;
  }
  int64_t block_slices = 1;
  while (block_slices < block_warps && block_slices < slices) block_slices *= 2;
  const int64_t block_tokens = block_warps / block_slices;
  plancap::LaunchConfig config;
  config.grid.x = static_cast<uint32_t>((tokens + block_tokens - 1) / block_tokens);
  config.grid.y = static_cast<uint32_t>((slices + block_slices - 1) / block_slices);
  config.block = {kLanes, static_cast<uint32_t>(block_slices), static_cast<uint32_t>(block_tokens)};
  config.shared_bytes = static_cast<uint32_t>(block_warps * shape.warp_bytes(staged));
  return config;
}

}  // namespace sdm
