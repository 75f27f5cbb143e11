#include "kernels/layer/token_gates_grad/token_gates_grad_geometry.h"

#include "kernels/layer/token_gates_grad/token_gates_grad_math.h"

namespace sdm {

// A block takes a group of a head at a time. Where blocks can form a cluster, those of a head share
// its groups, as many as have tokens: a power of two, up to the 8 that every such device allows.
StepGeometry token_gates_grad_geometry(const plancap::Target& target,
                                       const TokenGatesGradParams& params) {
  const int64_t tokens = int64_t{params.num_batches} * params.num_tokens;
  uint32_t blocks = 1;
  if (target.capability_major >= 9) {
    while (blocks < kSumGroups && blocks * int64_t{kGroupLanes} < tokens) blocks *= 2;
  }
  StepGeometry geometry;
  geometry.entry = "token_gates_grad";
  geometry.config.grid.x = blocks * static_cast<uint32_t>(params.num_heads);
  geometry.config.block.x = kGroupLanes;
  geometry.config.cluster.x = blocks;
  geometry.config.shared_bytes = sizeof(GateSums) * (kSumGroups + kLanes);
  return geometry;
}

}  // namespace sdm
