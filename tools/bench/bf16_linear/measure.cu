// Microseconds a call: graphs of launches over rotating, cold weights, with and without PDL.
#include <algorithm>
#include <cmath>

#include "harness.h"

namespace sdm::bench {
namespace {

constexpr size_t kWeightPool = size_t{384} << 20;  // bytes: several times the L2
constexpr int kMinLaunches = 32, kReplays = 9;

// Median microseconds a launch over the replays of one graph.
double time_graph(const Kernels& kernels, const Bf16LinearOperands& operands,
                  const Bf16LinearShape& shape, Bf16LinearChoice choice, bool pdl) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const size_t weight = static_cast<size_t>(shape.num_rows * shape.depth);
  const int copies = static_cast<int>(kWeightPool / 2 / weight);
  const int launches = std::max(copies, kMinLaunches);
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) {
    Bf16LinearOperands in = operands;
    in.weight += weight * (i % copies);
    in.y += i % 2 * shape.num_tokens * shape.num_rows;
    kernels.launch(stream, in, shape, choice, pdl);
  }
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t start, stop;
  CHECK_CUDA(cudaEventCreate(&start));
  CHECK_CUDA(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < kReplays + 2; ++i) {
    CHECK_CUDA(cudaEventRecord(start, stream));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaEventRecord(stop, stream));
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

// Tactics worth a measurement: the token tile that takes all tokens, or half of it.
bool worth_it(const Bf16LinearShape& shape, Bf16LinearChoice choice) {
  int64_t tile = 8;
  while (tile < 128 && tile < shape.num_tokens) tile *= 2;
  const int32_t tokens = kBf16LinearTactics[choice.tactic].tokens;
  return tokens == tile || (tile > 8 && tokens * 2 == tile);
}

}  // namespace

int measure(const Kernels& kernels, const char* json_path) {
  std::FILE* json = std::fopen(json_path, "w");
  if (json == nullptr) {
    std::printf("cannot write %s\n", json_path);
    return 1;
  }
  const int64_t weights[][2] = {{1024, 2048}, {2048, 2048}, {2560, 2560},
                                {2112, 7168}, {8192, 2048}, {4096, 4096},
                                {6144, 4096}, {4096, 7168}, {11008, 4096}};
  Buffer<uint16_t> pool(kWeightPool / 2), x(128 * 7168), y(2 * 128 * 11008), bias(11008);
  fill_random(pool, 1);
  fill_random(x, 2);
  fill_random(bias, 3);
  std::printf("%5s %5s %4s | %5s | %-38s %7s %5s | picked %s\n", "N", "K", "M", "pdl", "fastest",
              "us", "TB/s", "us");
  for (const auto& [n, k] : weights) {
    for (const int64_t m : {1, 8, 32, 64, 128}) {
      const Bf16LinearShape shape{m, n, k};
      const Bf16LinearOperands in{pool.data(), x.data(), bias.data(), y.data(), k, k, n};
      const Bf16LinearChoice picked = bf16_linear_pick(shape, kernels.sm_count());
      for (const bool pdl : {false, true}) {
        double best = 1e9, picked_us = 0;
        Bf16LinearChoice fastest{};
        for (const Bf16LinearChoice choice : all_choices(shape)) {
          if (!worth_it(shape, choice)) continue;
          const double us = time_graph(kernels, in, shape, choice, pdl);
          const std::string entry = bf16_linear_entry(kBf16LinearTactics[choice.tactic]);
          std::fprintf(json,
                       "{\"m\": %ld, \"n\": %ld, \"k\": %ld, \"tactic\": \"%s\", \"splits\": %d, "
                       "\"pdl\": %s, \"us\": %.4f}\n",
                       long(m), long(n), long(k), entry.c_str(), 1 << choice.split_log2,
                       pdl ? "true" : "false", us);
          if (us < best) best = us, fastest = choice;
          const bool is_picked =
              choice.tactic == picked.tactic && choice.split_log2 == picked.split_log2;
          if (is_picked) picked_us = us;
        }
        std::printf("%5ld %5ld %4ld | %5s | %-30s %d splits %7.2f %5.2f | %7.2f\n", long(n),
                    long(k), long(m), pdl ? "yes" : "no",
                    bf16_linear_entry(kBf16LinearTactics[fastest.tactic]).c_str(),
                    1 << fastest.split_log2, best, 2e-6 * double(n) * double(k) / best, picked_us);
        std::fflush(stdout);
      }
    }
  }
  std::fclose(json);
  return 0;
}

}  // namespace sdm::bench
