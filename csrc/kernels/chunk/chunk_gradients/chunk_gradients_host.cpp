#include "kernels/chunk/chunk_gradients/chunk_gradients.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_entries.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_math.h"
#include "kernels/common/math/float_mode.h"

namespace sdm {
namespace {

// Positions or tokens that a thread takes at once: few enough to share out one chunk.
constexpr int32_t kTile = 512;

class HostChunk {
 public:
  HostChunk(const ChunkGradientsParams& params, int32_t chunk)
      : entries_(params, chunk),
        gradients_(params, chunk, entries_),
        real_tokens_(chunk_tokens(shape_of(params), chunk).count(params.chunk_size)) {}
  HostChunk(const HostChunk&) = delete;
  HostChunk& operator=(const HostChunk&) = delete;

  void run(int32_t position) const {
    if (gradients_.none(position)) return;
    const ChunkEvent here = gradients_.events()[position];
    if (event_alone(here.word)) return gradients_.alone(here);
    if (!opens_run(gradients_.events(), position, here.word)) return;
    if (event_read(here.word)) return gradients_.reads(position);
    gradients_.writes(position);
  }

  void gates(int32_t position) const {
    const uint32_t word = gradients_.events()[position].word;
    if (event_alone(word) || event_read(word)) return;
    if (opens_run(gradients_.events(), position, word)) gradients_.gates(position);
  }

  void token(int32_t token) const {
    if (token < real_tokens_) entries_.put_sum(token);
  }

 private:
  const TensorEntries entries_;
  const ChunkGradients<TensorEntries> gradients_;
  const int32_t real_tokens_;
};

// visit(chunk, i) for the items i of every chunk, of `count` each.
template <typename Visit>
void for_items(const ChunkGradientsParams& params, int32_t count, const Visit& visit) {
  const int64_t tiles = (count + kTile - 1) / kTile;
#pragma omp parallel
  {
    const FloatMode mode;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < params.num_chunks * tiles; ++i) {
      const HostChunk chunk(params, static_cast<int32_t>(i / tiles));
      const auto first = static_cast<int32_t>(i % tiles * kTile);
      const int32_t end = count - first < kTile ? count : first + kTile;
      for (int32_t item = first; item < end; ++item) visit(chunk, item);
    }
  }
}

}  // namespace

void chunk_gradients_host(const ChunkGradientsParams& params, GradientPass pass) {
  const int32_t events = shape_of(params).events();
  const auto runs = [](const HostChunk& chunk, int32_t i) { chunk.run(i); };
  const auto gates = [](const HostChunk& chunk, int32_t i) { chunk.gates(i); };
  const auto tokens = [](const HostChunk& chunk, int32_t i) { chunk.token(i); };
  switch (pass) {
    case GradientPass::kRuns:
      return for_items(params, events, runs);
    case GradientPass::kGates:
      return for_items(params, events, gates);
    case GradientPass::kTokens:
      return for_items(params, params.chunk_size, tokens);
    case GradientPass::kWhole:
      for_items(params, events, runs);
      for_items(params, events, gates);
      if (params.gates != nullptr) for_items(params, params.chunk_size, tokens);
  }
}

}  // namespace sdm
