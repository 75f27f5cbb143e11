// What the standalone check and timing of bf16_linear share: device memory, random bf16 data, the
// kernels by tactic, and one launch. Uses the CUDA runtime alone: no Python, no extension.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/linear/bf16_linear/bf16_linear_fill.h"
#include "kernels/linear/bf16_linear/bf16_linear_maps.h"

#define CHECK_CUDA(call)                                                                     \
  do {                                                                                       \
    const cudaError_t error_ = (call);                                                       \
    if (error_ != cudaSuccess) {                                                             \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      std::exit(2);                                                                          \
    }                                                                                        \
  } while (0)

namespace sdm::bench {

// Device memory, freed with its owner.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    CHECK_CUDA(cudaMalloc(&data_, count * sizeof(T)));
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* data() const { return data_; }
  size_t count() const { return count_; }
  void poison(int byte) const { CHECK_CUDA(cudaMemset(data_, byte, count_ * sizeof(T))); }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// bf16 values in [-1, 1), different for every seed.
void fill_random(const Buffer<uint16_t>& buffer, uint64_t seed);

// The compiled tactics (<folder>/<entry>.cubin) and the device they run on.
class Kernels {
 public:
  explicit Kernels(const std::string& folder);
  int sm_count() const { return sm_count_; }

  // Fills, encodes the maps and launches on the stream. pdl: programmatic stream serialization.
  void launch(cudaStream_t stream, const Bf16LinearOperands& operands, const Bf16LinearShape& shape,
              Bf16LinearChoice choice, bool pdl, Bf16LinearOverlap overlap = {}) const;

  // How many blocks run at once, by tactic and cluster size.
  void print_capacity() const;

 private:
  std::vector<const void*> kernels_;
  EncodeTensorMap encode_ = nullptr;
  int sm_count_ = 0;
};

// Every tactic with every number of splits that it can have.
std::vector<Bf16LinearChoice> all_choices();

// "bf16_linear_r64_t8_k128_s6 x3".
std::string name(Bf16LinearChoice choice);
std::string describe(const Bf16LinearShape& shape, Bf16LinearChoice choice);

// Rotating weights in measurements: several times the L2.
inline constexpr size_t kWeightPoolBytes = size_t{384} << 20;

// Both return the number of failures. small: few shapes, for a run under a slow tool; only choices
// with `match` in their name.
int check(const Kernels& kernels, bool small, const std::string& match);
int measure(const Kernels& kernels, const char* json_path, const std::vector<int64_t>& tokens);

// Launches one tactic again and again over cold weights, inside a profiler's range.
int profile(const Kernels& kernels, const Bf16LinearShape& shape, const std::string& entry,
            int splits, bool pdl);

}  // namespace sdm::bench
