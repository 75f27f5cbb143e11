// What the step kernels' geometries share. A geometry follows from shapes, the addresses'
// alignment, the SM count and the device profile alone, and no result depends on it.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "kernels/common/records/walk_shape.h"
#include "kernels/common/rows/row_bits.h"
#include "kernels/common/rows/team_layout.h"
#include "plancap/capture/sink.h"

namespace sdm {

// Of an SM's shared memory, the part that every step kernel asks for. Kernels that ask for
// different parts never share an SM, so that one launched early would wait for the other's last
// block.
inline constexpr uint8_t kStepSharedPercent = 58;

// A device function, how to launch it, and what it relies on.
struct StepGeometry {
  struct Alignment {
    const char* operand;
    uint32_t bytes;
  };
  std::string entry;
  plancap::LaunchConfig config;
  std::vector<Alignment> alignments;  // above an element's own
};

// Rows that a kernel reads or writes whole pieces of.
struct StoredRows {
  const char* operand;
  const void* data;
  RowType type;
};

// Columns of 16 bytes of the narrowest of these plain rows.
int32_t widest_piece(std::initializer_list<RowType> types);

// Columns of a row that one thread holds: 8 (16 bytes of bf16) or 4, at most `most`, if every piece
// of every row is whole and aligned; else 0: elements one by one, wherever they are.
int32_t piece_columns(int32_t hd, int32_t most, std::span<const StoredRows> rows);

// The alignments that pieces of `columns` columns need; none for 0.
std::vector<StepGeometry::Alignment> piece_alignments(std::span<const StoredRows> rows,
                                                      int32_t columns);

// "_c8", "_c4", and what an entry for any rows is called instead: "_any".
std::string entry_name(const char* kernel, std::initializer_list<RowType> types, int32_t columns);

// Columns per thread of the device code that `columns` stands for: the any-code holds 4.
inline int32_t held_columns(int32_t columns) { return columns == 8 ? 8 : 4; }

// What a kernel that walks sorted entries is launched on: x = slice groups and tiles for blocks of
// `block_warps` warps, y and z = sequences (WalkPlace).
struct RecordLaunch {
  int32_t hd, columns, num_parallel, entries, block_warps;
};
struct RecordGrid {
  plancap::Dim3 grid;
  int32_t tile;  // positions of a warp, at most
};
RecordGrid record_grid(const RecordLaunch& launch, int sm_count);

// Puts such a grid into a geometry, for blocks of `shape` with rings of `ring_bytes`.
void use_records(StepGeometry& geometry, const RecordGrid& records, WalkShape shape,
                 uint32_t ring_bytes);

// Puts a geometry into a launch whose operands are filled in.
void use_geometry(plancap::Launch& launch, const StepGeometry& geometry, bool pdl);

}  // namespace sdm
