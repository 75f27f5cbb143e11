#include "kernels/chunk/pair_matrices/pair_matrices_geometry.h"

#include "kernels/chunk/pair_matrices/pair_matrices_tile.h"

namespace sdm {

StepGeometry pair_matrices_geometry(const PairMatricesParams& params) {
  const int64_t total = int64_t{params.num_chunks} * params.chunk_size;
  const int32_t rows = pair_rows(params.chunk_size);
  StepGeometry geometry;
  geometry.entry = "pair_matrices";
  geometry.config.grid = {static_cast<uint32_t>((total + rows - 1) / rows), 2, 1};
  geometry.config.block.x = static_cast<uint32_t>(rows);
  geometry.config.shared_bytes = static_cast<uint32_t>(rows * params.chunk_size * 4);
  return geometry;
}

}  // namespace sdm
