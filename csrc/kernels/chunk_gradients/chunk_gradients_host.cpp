#include "kernels/chunk_gradients/chunk_gradients.h"
#include "kernels/chunk_gradients/chunk_gradients_math.h"
#include "kernels/common/float_mode.h"

namespace sdm {
namespace {

// Positions or tokens that a thread takes at once: few enough to share out one chunk.
constexpr int32_t kTile = 512;

// visit(chunk, i) for the items i of every chunk, of `count` each.
template <typename Visit>
void for_items(const ChunkGradientsParams& params, int32_t count, const Visit& visit) {
  const int64_t tiles = (count + kTile - 1) / kTile;
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < params.num_chunks * tiles; ++i) {
      const ChunkGradients chunk(params, i / tiles);
      const auto first = static_cast<int32_t>(i % tiles * kTile);
      const int32_t end = count - first < kTile ? count : first + kTile;
      for (int32_t item = first; item < end; ++item) visit(chunk, item);
    }
  }
}

}  // namespace

void chunk_gradients_host(const ChunkGradientsParams& params, GradientPass pass) {
  const int32_t events = shape_of(params).events();
  switch (pass) {
    case GradientPass::kRuns:
      return for_items(params, events, [](const auto& chunk, int32_t i) { chunk.run(i); });
    case GradientPass::kGates:
      return for_items(params, events, [](const auto& chunk, int32_t i) { chunk.gates(i); });
    case GradientPass::kTokens:
      return for_items(params, params.chunk_size, [](const auto& chunk, int32_t token) {
        if (token < chunk.valid_tokens()) chunk.token_gate(token);
      });
  }
}

}  // namespace sdm
