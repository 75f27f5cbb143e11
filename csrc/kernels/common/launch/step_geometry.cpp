#include "kernels/common/launch/step_geometry.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/launch/row_checks.h"
#include "plancap/base/error.h"

namespace sdm {
namespace {

constexpr int64_t kMostBlocksY = 65535;
constexpr int32_t kBlocksPerSm = 2;  // of one kernel in one wave: half an SM is the next one's
constexpr int32_t kLongTile = 8;     // positions of a warp where the problem takes several waves

uint32_t piece_align(RowType type, int32_t columns) {
  return std::min<uint32_t>(piece_bytes(type, columns), 16);
}

bool aligned(const void* data, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

}  // namespace

int32_t widest_piece(std::initializer_list<RowType> types) {
  int bits = 32;
  for (const RowType type : types) bits = std::min(bits, element_bits(type));
  return 16 * 8 / bits;
}

int32_t piece_columns(int32_t hd, int32_t most, std::span<const StoredRows> rows) {
  const int32_t width = slice_width(hd);
  for (const int32_t columns : {8, 4}) {
    if (columns > most || hd % columns != 0 || width % columns != 0) continue;
    const bool all = std::ranges::all_of(
        rows, [&](const StoredRows& r) { return aligned(r.data, piece_align(r.type, columns)); });
    if (all) return columns;
  }
  return 0;
}

std::vector<StepGeometry::Alignment> piece_alignments(std::span<const StoredRows> rows,
                                                      int32_t columns) {
  std::vector<StepGeometry::Alignment> list;
  if (columns == 0) return list;
  for (const StoredRows& r : rows) list.push_back({r.operand, piece_align(r.type, columns)});
  return list;
}

std::string entry_name(const char* kernel, std::initializer_list<RowType> types, int32_t columns) {
  if (columns == 0) return cat(kernel, "_any");
  std::string name = kernel;
  for (const RowType type : types) name += cat("_", row_type_name(type));
  return cat(name, "_c", columns);
}

RecordGrid record_grid(const RecordLaunch& launch, int sm_count) {
  const TeamLayout layout = team_layout(launch.hd, held_columns(launch.columns));
  const int64_t per_tile = int64_t{layout.slice_groups} * launch.num_parallel;
  const auto tiles = [&](int32_t tile) {
    const int32_t positions = launch.block_warps * tile;
    return (launch.entries + positions - 1) / positions;
  };
  const int64_t most = int64_t{kBlocksPerSm} * sm_count;
  int32_t tile = layout.groups_per_round;
  while (tile < kLanes && per_tile * tiles(tile) > most) tile *= 2;
  if (per_tile * tiles(tile) > most) tile = kLongTile;
  const int64_t rows = std::min<int64_t>(launch.num_parallel, kMostBlocksY);
  return {{static_cast<uint32_t>(layout.slice_groups * tiles(tile)), static_cast<uint32_t>(rows),
           static_cast<uint32_t>((launch.num_parallel + rows - 1) / rows)},
          tile};
}

void use_records(StepGeometry& geometry, const RecordGrid& records, WalkShape shape,
                 uint32_t ring_bytes) {
  geometry.config.grid = records.grid;
  geometry.config.block.x = static_cast<uint32_t>(shape.threads);
  geometry.config.shared_bytes = ring_bytes + shape.list_bytes(records.tile);
}

void use_geometry(plancap::Launch& launch, const StepGeometry& geometry, bool pdl) {
  launch.entry = geometry.entry;
  launch.config = geometry.config;
  launch.config.programmatic = pdl;
  for (const StepGeometry::Alignment& alignment : geometry.alignments) {
    for (plancap::Operand& operand : launch.operands) {
      if (std::strcmp(operand.name, alignment.operand) != 0) continue;
      operand.align = std::max(operand.align, alignment.bytes);
    }
  }
}

}  // namespace sdm
