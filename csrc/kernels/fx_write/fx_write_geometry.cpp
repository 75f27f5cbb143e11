#include "kernels/fx_write/fx_write_geometry.h"

#include "kernels/fx_write/fx_write_ring.h"

namespace sdm {
namespace {

constexpr int32_t kBlocksPerSm = 2;  // of 8 warps: 64 KiB of rows in flight per SM

}  // namespace

StepGeometry fx_write_geometry(const plancap::Target& target, const FxWriteParams& params) {
  const RowType bank = params.bank_type;
  const StoredRows rows[] = {{"bank", params.bank, bank},
                             {"snap", params.snap, bank},
                             {"delta", params.delta, RowType::kFloat32}};
  const int32_t columns = piece_columns(params.hd, bank == RowType::kBFloat16 ? 8 : 4, rows);

  StepGeometry geometry;
  geometry.entry = entry_name("fx_write", {bank}, columns);
  geometry.config.grid =
      record_grid({params.hd, columns, params.num_parallel, params.chunk_size * params.num_writes,
                   kWriteShape.warps(), kBlocksPerSm},
                  target.sm_count);
  geometry.config.block.x = kWriteShape.threads;
  geometry.config.shared_bytes = columns == 0
                                     ? write_shared_bytes(kWriteShape, kAnyRow, kLaneColumns)
                                     : write_shared_bytes(kWriteShape, bank, columns);
  geometry.alignments = piece_alignments(rows, columns);
  return geometry;
}

}  // namespace sdm
