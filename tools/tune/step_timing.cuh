// Times of chains inside CUDA graphs, and a number that their results give.
#pragma once
#include "step_launches.cuh"

namespace tune {

// us per step of a graph that issues `chain` for every step, the last first; the median of replays.
inline float time_chain(const std::vector<Launch*>& chain, int steps, bool pdl) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int step = steps - 1; step >= 0; --step) {
    for (Launch* launch : chain) {
      launch->issue(stream, step, pdl && !(step == steps - 1 && launch == chain.front()));
    }
  }
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamEndCapture(stream, &graph), "end capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < 9; ++i) {
    check(cudaEventRecord(begin, stream), "record");
    check(cudaGraphLaunch(exec, stream), "launch");
    check(cudaEventRecord(end, stream), "record");
    check(cudaStreamSynchronize(stream), "run");
    float ms;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (i >= 2) times.push_back(ms * 1000 / steps);
  }
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
  cudaEventDestroy(begin), cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

__global__ void add_words(const uint32_t* words, size_t count, unsigned long long* sum) {
  unsigned long long own = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    own += (words[i] ^ uint32_t(i)) * 0x9e3779b97f4a7c15ull >> 20;
  }
  atomicAdd(sum, own);
}

// What a few steps of a chain write, from one and the same start, as one number.
class Results {
 public:
  explicit Results(const Problem& p) : steps_(std::min(p.sizes.steps, 6)) {
    const Sizes& s = p.sizes;
    const size_t rows = size_t(s.sequences) * s.slots * s.hd * 2;
    const size_t tokens = s.tokens() * s.hd * 4;
    const size_t planes = s.chunks() * s.entries() * s.slices() * 4;
    written_ = {{p.gds.grad, rows},    {p.pa2.bank, rows},  {p.gemm.d_u, tokens},
                {p.gwr.d_dv, tokens},  {p.gwr.dpd, planes}, {p.pa2.out_eff, planes},
                {p.pa2.out_g, planes}, {p.gds.dq, planes}};
    for (const auto& [data, bytes] : written_) {
      start_.push_back(device_memory<char>(bytes));
      check(cudaMemcpy(start_.back(), data, bytes, cudaMemcpyDeviceToDevice), "back up");
    }
    sum_ = device_memory<unsigned long long>(1);
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  ~Results() {
    for (char* data : start_) cudaFree(data);
    cudaFree(sum_);
  }

  unsigned long long of(const std::vector<Launch*>& chain, bool pdl) {
    for (size_t i = 0; i < written_.size(); ++i) {
      const auto [data, bytes] = written_[i];
      check(cudaMemcpy(data, start_[i], bytes, cudaMemcpyDeviceToDevice), "restore");
    }
    for (int step = steps_ - 1; step >= 0; --step) {
      for (Launch* launch : chain) launch->issue(nullptr, step, pdl && launch != chain.front());
    }
    check(cudaMemset(sum_, 0, sizeof(*sum_)), "memset");
    for (const auto& [data, bytes] : written_) {
      add_words<<<1024, 256>>>(static_cast<const uint32_t*>(data), bytes / 4, sum_);
    }
    unsigned long long sum;
    check(cudaMemcpy(&sum, sum_, sizeof(sum), cudaMemcpyDeviceToHost), "sum");
    return sum;
  }

 private:
  int steps_;
  std::vector<std::pair<void*, size_t>> written_;
  std::vector<char*> start_;
  unsigned long long* sum_;
};

}  // namespace tune
