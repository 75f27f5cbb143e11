#include "kernels/chunk/chunk_readings/chunk_readings_geometry.h"

#include <algorithm>

#include "kernels/chunk/chunk_readings/chunk_readings_tile.h"
#include "kernels/common/launch/row_checks.h"
#include "kernels/common/rows/row_bits.h"

namespace sdm {
namespace {

constexpr int64_t kMostBlocksY = 65535;
constexpr int64_t kBlocksPerSm = 2;

bool aligned(const void* data, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// Of a chunk.
int64_t blocks(const ChunkReadingsParams& params, const ReadingTile& tile) {
  return int64_t{reading_bands(params.chunk_size)} * reading_tiles(params.hd, tile);
}

}  // namespace

StepGeometry chunk_readings_geometry(const plancap::Target& target,
                                     const ChunkReadingsParams& params) {
  StepGeometry geometry;
  // Four columns at a time, where rows and addresses are multiples of them.
  const auto stored = static_cast<uint32_t>(row_bytes(params.readings_type, kReadingColumns));
  const bool four = params.hd % kReadingColumns == 0 && aligned(params.reading, 16) &&
                    aligned(params.delta, 16) && aligned(params.readings, stored);
  if (four) geometry.alignments = {{"reading", 16}, {"delta", 16}, {"readings", stored}};

  // Wide tiles read qk less often.
  const bool wide =
      four && params.hd > kReadingNarrow.width &&
      blocks(params, kReadingWide) * params.num_chunks >= kBlocksPerSm * target.sm_count;
  const ReadingTile& tile = wide ? kReadingWide : kReadingNarrow;
  geometry.entry =
      four ? cat("chunk_readings_", row_type_name(params.readings_type), "_w", tile.width)
           : "chunk_readings_any";
  const int64_t rows = std::min<int64_t>(params.num_chunks, kMostBlocksY);
  geometry.config.grid = {static_cast<uint32_t>(blocks(params, tile)), static_cast<uint32_t>(rows),
                          static_cast<uint32_t>((params.num_chunks + rows - 1) / rows)};
  geometry.config.block.x = static_cast<uint32_t>(tile.threads());
  geometry.config.shared_bytes = static_cast<uint32_t>(reading_shared_floats(tile.width) * 4);
  return geometry;
}

}  // namespace sdm
