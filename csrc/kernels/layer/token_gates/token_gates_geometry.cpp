#include "kernels/layer/token_gates/token_gates_geometry.h"

#include "kernels/layer/token_gates/token_gates_block.h"

namespace sdm {

StepGeometry token_gates_geometry(const TokenGatesParams& params) {
  const int64_t tokens = int64_t{params.num_batches} * params.num_tokens;
  const int32_t tile = gate_tile(tokens);
  StepGeometry geometry;
  geometry.entry = "token_gates";
  geometry.config.grid.x = static_cast<uint32_t>((tokens + tile - 1) / tile);
  geometry.config.block.x = kGateThreads;
  return geometry;
}

}  // namespace sdm
