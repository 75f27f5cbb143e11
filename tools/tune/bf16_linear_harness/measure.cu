// Microseconds a call: graphs of launches over rotating, cold weights, with and without PDL.
#include <algorithm>

#include "harness.h"

namespace sdm::bench {
namespace {

constexpr int kMinLaunches = 32, kReplays = 9;

// Median microseconds a launch over the replays of one graph.
double time_graph(const Kernels& kernels, const Bf16LinearOperands& operands,
                  const Bf16LinearShape& shape, Bf16LinearChoice choice, bool pdl,
                  Bf16LinearOverlap overlap) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const size_t weight = static_cast<size_t>(shape.num_rows * shape.depth);
  const int copies = static_cast<int>(kWeightPoolBytes / 2 / weight);
  const int launches = std::max(copies, kMinLaunches);
  // The events are nodes of the graph, so that its own launch is not timed.
  cudaEvent_t start, stop;
  CHECK_CUDA(cudaEventCreate(&start));
  CHECK_CUDA(cudaEventCreate(&stop));
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK_CUDA(cudaEventRecordWithFlags(start, stream, cudaEventRecordExternal));
  for (int i = 0; i < launches; ++i) {
    Bf16LinearOperands in = operands;
    in.weight += weight * (i % copies);
    in.y += i % 2 * shape.num_tokens * shape.num_rows;
    kernels.launch(stream, in, shape, choice, pdl, overlap);
  }
  CHECK_CUDA(cudaEventRecordWithFlags(stop, stream, cudaEventRecordExternal));
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<float> times;
  for (int i = 0; i < kReplays + 2; ++i) {
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    float milliseconds;
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start, stop));
    if (i >= 2) times.push_back(milliseconds * 1000 / launches);
  }
  CHECK_CUDA(cudaEventDestroy(start));
  CHECK_CUDA(cudaEventDestroy(stop));
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2];
}

// Tactics worth a measurement: the token tile that takes all tokens, or half of it, and at most two
// waves of blocks where these share the depth, each with some of it.
bool worth_it(const Kernels& kernels, const Bf16LinearShape& shape, Bf16LinearChoice choice) {
  const Bf16LinearTactic& tactic = kBf16LinearTactics[choice.tactic];
  const Bf16LinearGrid grid = bf16_linear_grid(shape, choice);
  const bool in_two_waves = grid.x * grid.y <= 2 * static_cast<uint32_t>(kernels.sm_count());
  const bool has_tiles = choice.splits * tactic.depth < shape.depth + tactic.depth;
  if (choice.splits > 1 && !(in_two_waves && has_tiles)) return false;
  int64_t tile = 8;
  while (tile < 128 && tile < shape.num_tokens) tile *= 2;
  return tactic.tokens == tile || (tile > 8 && tactic.tokens * 2 == tile);
}

// One way to launch, and what it took.
struct Result {
  Bf16LinearChoice choice{};
  bool pdl = false;
  Bf16LinearOverlap overlap{};
  double us = 1e9;
};

// The measurements of one shape, written as they come.
class Shape {
 public:
  Shape(const Kernels& kernels, const Bf16LinearOperands& operands, const Bf16LinearShape& shape,
        std::FILE* json)
      : kernels_(kernels), operands_(operands), shape_(shape), json_(json) {}

  void run() {
    const int32_t early = 1 << 20;
    for (const Bf16LinearChoice choice : all_choices()) {
      if (!worth_it(kernels_, shape_, choice)) continue;
      for (const bool pdl : {false, true}) add(choice, pdl, {});
    }
    // The fastest of a chain with other overlaps.
    std::vector<Result> chain;
    for (const Result& result : results_) {
      if (result.pdl) chain.push_back(result);
    }
    std::sort(chain.begin(), chain.end(), [](auto& a, auto& b) { return a.us < b.us; });
    if (chain.size() > 3) chain.resize(3);
    for (const Result& result : chain) {
      for (const int32_t lead : {early, 4}) add(result.choice, true, {lead, 0});
      add(result.choice, true, {2, 4});
    }
  }

  Result fastest(bool pdl) const {
    Result best;
    for (const Result& result : results_) {
      if (result.pdl == pdl && result.us < best.us) best = result;
    }
    return best;
  }

 private:
  void add(Bf16LinearChoice choice, bool pdl, Bf16LinearOverlap overlap) {
    Result result{choice, pdl, overlap, 0};
    result.us = time_graph(kernels_, operands_, shape_, choice, pdl, overlap);
    results_.push_back(result);
    std::fprintf(json_,
                 "{\"m\": %ld, \"n\": %ld, \"k\": %ld, \"tactic\": \"%s\", \"splits\": %d, "
                 "\"pdl\": %s, \"lead\": %d, \"prefetch\": %d, \"us\": %.4f}\n",
                 long(shape_.num_tokens), long(shape_.num_rows), long(shape_.depth),
                 bf16_linear_entry(kBf16LinearTactics[choice.tactic]).c_str(), choice.splits,
                 pdl ? "true" : "false", overlap.trigger_lead, overlap.prefetch_tiles, result.us);
  }

  const Kernels& kernels_;
  Bf16LinearOperands operands_;
  Bf16LinearShape shape_;
  std::FILE* json_;
  std::vector<Result> results_;
};

void print(const Bf16LinearShape& shape, const Result& result) {
  const double weights = 2.0 * double(shape.num_rows) * double(shape.depth);
  std::printf("%5ld %5ld %4ld %5s  %-33s  lead %7d prefetch %2d  %7.2f us  %5.2f TB/s\n",
              long(shape.num_rows), long(shape.depth), long(shape.num_tokens),
              result.pdl ? "chain" : "plain", name(result.choice).c_str(),
              result.overlap.trigger_lead, result.overlap.prefetch_tiles, result.us,
              1e-6 * weights / result.us);
}

}  // namespace

int measure(const Kernels& kernels, const char* json_path, const std::vector<int64_t>& tokens) {
  std::FILE* json = std::fopen(json_path, "w");
  if (json == nullptr) {
    std::printf("cannot write %s\n", json_path);
    return 1;
  }
  kernels.print_capacity();
  const int64_t weights[][2] = {{1024, 2048}, {2048, 2048}, {2560, 2560},
                                {2112, 7168}, {8192, 2048}, {4096, 4096},
                                {6144, 4096}, {4096, 7168}, {11008, 4096}};
  const int64_t most = *std::max_element(tokens.begin(), tokens.end());
  Buffer<uint16_t> pool(kWeightPoolBytes / 2), x(most * 7168), y(2 * most * 11008), bias(11008);
  fill_random(pool, 1);
  fill_random(x, 2);
  fill_random(bias, 3);
  for (const auto& [n, k] : weights) {
    for (const int64_t m : tokens) {
      const Bf16LinearShape shape{m, n, k};
      Shape measured(kernels, {pool.data(), x.data(), bias.data(), y.data(), k, k, n}, shape, json);
      measured.run();
      print(shape, measured.fastest(false));
      print(shape, measured.fastest(true));
      std::fflush(stdout);
    }
  }
  std::fclose(json);
  return 0;
}

}  // namespace sdm::bench
