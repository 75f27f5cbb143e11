#include "kernels/chunk/chunk_gradients/chunk_gradients_geometry.h"

#include <algorithm>

#include "kernels/chunk/chunk_gradients/chunk_gradients_block.h"
#include "kernels/common/launch/chunk_launch.h"

namespace sdm {
namespace {

// A chunk is taken whole where an SM has several of them to work on, at once and one after another:
// a block waits for its slowest slot.
constexpr int64_t kWholeChunksPerSm = 2;
constexpr uint32_t kWholeBlocksPerSm = 2;
constexpr uint32_t kReservedBytes = 1024;  // of an SM's shared memory, by every block

// A shared chunk: the positions of a warp, so that its lists fill rows of lanes (longer ones were
// slower: docs/measured.md); fewer where an SM would have fewer warps than this.
constexpr int32_t kLongSpan = 64;
constexpr int64_t kWarpsPerSm = 64;

plancap::LaunchConfig whole_config(const ChunkGradientsParams& params) {
  const ChunkShape shape = shape_of(params);
  plancap::LaunchConfig config = chunk_config(params.num_chunks, shape.events(), kWholeThreads, 0);
  const auto warps = static_cast<int32_t>(config.block.x) / kWarpLanes;
  config.shared_bytes = static_cast<uint32_t>(StagedLayout(shape).lists) +
                        static_cast<uint32_t>(list_bytes(shape.events(), warps));
  return config;
}

bool takes_whole(const plancap::Target& target, const ChunkGradientsParams& params) {
  const uint32_t block_bytes = whole_config(params).shared_bytes + kReservedBytes;
  return params.num_chunks >= kWholeChunksPerSm * target.sm_count &&
         kWholeBlocksPerSm * block_bytes <= target.shared_bytes_optin + kReservedBytes;
}

plancap::LaunchConfig shared_config(const plancap::Target& target,
                                    const ChunkGradientsParams& params) {
  const int32_t events = shape_of(params).events();
  const int64_t fewest = kWarpsPerSm * target.sm_count;
  int32_t span = kLongSpan;
  while (span > kWarpLanes && params.num_chunks * (int64_t{events} / span) < fewest) span /= 2;
  const int32_t positions = kGradientWarps * span;
  const int32_t blocks = (events + positions - 1) / positions;
  plancap::LaunchConfig config;
  config.grid.x = static_cast<uint32_t>(params.num_chunks) * static_cast<uint32_t>(blocks);
  config.block.x = kGradientThreads;
  // The lists of all warps of the chunk, of which the block has its own.
  config.shared_bytes = static_cast<uint32_t>(list_bytes(events, blocks * kGradientWarps) / blocks);
  return config;
}

}  // namespace

std::vector<GradientPass> chunk_gradients_passes(const plancap::Target& target,
                                                 const ChunkGradientsParams& params) {
  const bool device = target.backend == plancap::Backend::kCuda;
  if (device && takes_whole(target, params)) return {GradientPass::kWhole};
  if (params.gates == nullptr) return {GradientPass::kRuns, GradientPass::kGates};
  return {GradientPass::kRuns, GradientPass::kGates, GradientPass::kTokens};
}

StepGeometry chunk_gradients_geometry(const plancap::Target& target,
                                      const ChunkGradientsParams& params, GradientPass pass) {
  StepGeometry geometry;
  switch (pass) {
    case GradientPass::kWhole:
      geometry.entry = "chunk_gradients_whole";
      geometry.config = whole_config(params);
      break;
    case GradientPass::kRuns:
    case GradientPass::kGates:
      geometry.entry =
          pass == GradientPass::kRuns ? "chunk_gradients_runs" : "chunk_gradients_gates";
      geometry.config = shared_config(target, params);
      break;
    case GradientPass::kTokens:
      geometry.entry = "chunk_gradients_tokens";
      geometry.config.grid.x = static_cast<uint32_t>(params.num_chunks) *
                               static_cast<uint32_t>(token_blocks(params.chunk_size));
      geometry.config.block.x = kGradientThreads;
      break;
  }
  return geometry;
}

}  // namespace sdm
