// How chunk_inverse's device code is cut up, as its kernel and its host geometry both need it.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

// A block makes 32 columns, a lane each, and holds 32 rows of them in registers.
inline constexpr int32_t kInverseTile = 32;
inline constexpr int32_t kInverseThreads = 64;  // a warp makes X, the other one QX
inline constexpr int32_t kInverseStages = 2;    // pieces of a triangle on their way to a warp
inline constexpr int32_t kStageFloats = kInverseTile * kInverseTile;
inline constexpr int32_t kXStride = kInverseTile + 1;  // rows and columns without bank conflicts

SDM_HD int32_t inverse_tiles(int32_t chunk_size) {
  return (chunk_size + kInverseTile - 1) / kInverseTile;
}

// Both warps' stages, 32 rows of qk's own columns, then the block's columns of X.
inline constexpr int32_t kOwnFloats = kInverseTile * kXStride;
SDM_HD int32_t inverse_shared_floats(int32_t chunk_size) {
  const int32_t stages = kInverseThreads / 32 * kInverseStages * kStageFloats;
  return stages + kOwnFloats + inverse_tiles(chunk_size) * kInverseTile * kXStride;
}

// A block's chunk and tile of columns. The first tile of a chunk is the most work. Many chunks come
// one by one, so that their tiles find the triangles in the L2; of few, all long tiles come first.
inline constexpr int32_t kManyChunks = 1024;

struct InversePlace {
  int32_t chunk, tile;
};

SDM_HD InversePlace inverse_place(uint32_t block, int32_t num_chunks, int32_t chunk_size) {
  const auto tiles = static_cast<uint32_t>(inverse_tiles(chunk_size));
  const auto chunks = static_cast<uint32_t>(num_chunks);
  if (num_chunks >= kManyChunks) {
    return {static_cast<int32_t>(block / tiles), static_cast<int32_t>(block % tiles)};
  }
  return {static_cast<int32_t>(block % chunks), static_cast<int32_t>(block / chunks)};
}

}  // namespace sdm
