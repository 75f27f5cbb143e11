// One tactic for a profiler: launches over rotating cold weights, as the measurement has them.
#include <cuda_profiler_api.h>

#include "harness.h"

namespace sdm::bench {
namespace {

constexpr int kLaunches = 32;

int32_t find_tactic(const std::string& entry) {
  for (int32_t i = 0; i < kNumBf16LinearTactics; ++i) {
    if (bf16_linear_entry(kBf16LinearTactics[i]) == entry) return i;
  }
  std::printf("no tactic %s\n", entry.c_str());
  std::exit(2);
}

}  // namespace

int profile(const Kernels& kernels, const Bf16LinearShape& shape, const std::string& entry,
            int splits, bool pdl) {
  const auto [m, n, k] = shape;
  const Bf16LinearChoice choice{find_tactic(entry), splits};
  if (!bf16_linear_splits_valid(kBf16LinearTactics[choice.tactic], splits)) {
    std::printf("%s has no %d splits\n", entry.c_str(), splits);
    return 1;
  }
  Buffer<uint16_t> pool(kWeightPoolBytes / 2), x(m * k), y(2 * m * n), bias(n);
  fill_random(pool, 1);
  fill_random(x, 2);
  fill_random(bias, 3);
  const int64_t weight = n * k;
  const int64_t copies = static_cast<int64_t>(pool.count()) / weight;
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto launch_all = [&] {
    for (int i = 0; i < kLaunches; ++i) {
      const Bf16LinearOperands in{pool.data() + weight * (i % copies),
                                  x.data(),
                                  bias.data(),
                                  y.data() + i % 2 * m * n,
                                  k,
                                  k,
                                  n};
      kernels.launch(stream, in, shape, choice, pdl);
    }
  };
  // A chain as a graph: one launch of the host, so that a range holds nothing but kernels.
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch_all();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  const auto run = [&] {
    if (pdl) {
      CHECK_CUDA(cudaGraphLaunch(exec, stream));
    } else {
      launch_all();
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
  };
  run();
  CHECK_CUDA(cudaProfilerStart());
  run();
  CHECK_CUDA(cudaProfilerStop());
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  return 0;
}

}  // namespace sdm::bench
