// Operands of a backward's step kernels on the device: random values, random distinct slots.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/math/ordered_math.h"
#include "kernels/step/gx_gds/gx_gds_params.h"
#include "kernels/step/gx_gemm/gx_gemm_params.h"
#include "kernels/step/gx_gwr/gx_gwr_params.h"
#include "kernels/step/gx_pa2/gx_pa2_params.h"

namespace tune {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <typename T>
T* device_memory(size_t count) {
  void* data = nullptr;
  check(cudaMalloc(&data, count * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(data);
}

template <typename T>
T* upload(const std::vector<T>& host) {
  T* data = device_memory<T>(host.size());
  check(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return data;
}

struct Sizes {
  std::string name;
  int sequences, chunk, writes, hd, slots;
  int steps;  // as many as are allocated and timed

  int entries() const { return chunk * writes; }
  size_t chunks() const { return size_t(sequences) * steps; }
  size_t tokens() const { return chunks() * chunk; }
  int slices() const { return sdm::num_slices(hd); }
};

// The shapes of the targets; fewer steps where a whole backward would take many gigabytes.
inline std::vector<Sizes> target_shapes() {
  return {{"long128", 2, 64, 16, 128, 16384, 512},
          {"small128", 8, 64, 32, 128, 16384, 128},
          {"flag32k", 2, 64, 64, 1024, 65536, 64},
          {"flag_b4", 8, 64, 64, 1024, 65536, 16},
          {"cfg14b", 8, 256, 128, 1024, 65536, 3}};
}

__global__ void fill_random(uint32_t* words, size_t count, uint32_t exponents) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = uint32_t(i) * 2654435761u + uint32_t(i >> 32);
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
    words[i] = (x & ~exponents) | (exponents & 0x3c003c00u);  // small numbers, either sign
  }
}

// `bytes` of bf16 or f32 values around 0.01.
inline char* random_rows(size_t bytes) {
  char* data = device_memory<char>(bytes + 16);
  fill_random<<<1024, 256>>>(reinterpret_cast<uint32_t*>(data), bytes / 4, 0x7f807f80u);
  check(cudaGetLastError(), "fill_random");
  return data;
}

struct Problem {
  Sizes sizes;
  sdm::GxGwrParams gwr{};
  sdm::GxGemmParams gemm{};
  sdm::GxPa2Params pa2{};
  sdm::GxGdsParams gds{};
  std::vector<void*> allocations;
};

// One chunk's entries in slot order, and the slots in token order.
inline void draw_chunk(const Sizes& sizes, int sequence, std::mt19937& random, sdm::Record* records,
                       int32_t* slots, int32_t* counts) {
  std::vector<std::pair<int32_t, int32_t>> order;  // row, entry
  std::vector<int32_t> taken(sizes.slots, -1);
  for (int token = 0; token < sizes.chunk; ++token) {
    for (int w = 0; w < sizes.writes;) {
      const auto slot = int32_t(random() % uint32_t(sizes.slots));
      if (taken[slot] == token) continue;
      taken[slot] = token;
      const int32_t row = sequence * sizes.slots + slot, entry = token * sizes.writes + w++;
      if (slots) slots[entry] = row;
      order.push_back({row, entry});
    }
  }
  std::sort(order.begin(), order.end());
  int groups = 0, begin = 0;
  for (int i = 0; i < sizes.entries(); ++i) {
    const auto [row, entry] = order[i];
    const bool first = i == 0 || order[i - 1].first != row;
    const bool last = i + 1 == sizes.entries() || order[i + 1].first != row;
    if (counts && i % 32 == 0) counts[i / 32] = groups;
    groups += first;
    if (first) begin = i;
    const auto distance = uint32_t(std::min(i - begin, sdm::kDistanceSaturated));
    const auto token = uint32_t(entry / sizes.writes), w = uint32_t(entry % sizes.writes);
    const uint32_t bits = uint32_t(first) << 31 | uint32_t(last) << 30;
    records[i] = {bits | distance << sdm::kRecordDistanceAt | token << 9 | w, row, 0.01f, 0.9f};
  }
}

inline Problem make_problem(const Sizes& sizes) {
  std::mt19937 random(1);
  const size_t entries = sizes.chunks() * sizes.entries();
  const int blocks = (sizes.entries() + 31) / 32 + 1;
  std::vector<sdm::Record> writes(entries), reads(entries);
  std::vector<int32_t> slots(entries), counts(sizes.chunks() * blocks);
  for (size_t n = 0; n < sizes.chunks(); ++n) {
    const size_t at = n * sizes.entries();
    draw_chunk(sizes, int(n % sizes.sequences), random, &writes[at], &slots[at],
               &counts[n * blocks]);
    draw_chunk(sizes, int(n % sizes.sequences), random, &reads[at], nullptr, nullptr);
  }
  const size_t row = size_t(sizes.hd) * 2, token_bytes = sizes.tokens() * sizes.hd * 4;
  const size_t bank_bytes = size_t(sizes.sequences) * sizes.slots * row;
  const auto floats = [](char* data) { return reinterpret_cast<float*>(data); };
  const auto planes = [&] { return device_memory<float>(entries * sizes.slices()); };

  Problem p{sizes};
  char *grad = random_rows(bank_bytes), *bank = random_rows(bank_bytes);
  float *d_u = floats(random_rows(token_bytes)), *d_dv = floats(random_rows(token_bytes));
  const int c = sizes.chunk, hd = sizes.hd, sequences = sizes.sequences;
  const auto bf16 = sdm::RowType::kBFloat16;
  p.gwr = {grad,
           floats(random_rows(token_bytes)),
           floats(random_rows(entries * 4)),
           upload(slots),
           d_dv,
           planes(),
           int64_t(sizes.steps) * c,
           int64_t(entries),
           0,
           sequences,
           c,
           sizes.writes,
           hd,
           bf16};
  p.gemm = {d_u, floats(random_rows(sizes.tokens() * c * 4)), d_dv, 0, sequences, c, hd};
  p.pa2 = {grad,
           bank,
           random_rows(entries * row),
           nullptr,
           d_u,
           floats(random_rows(sizes.tokens() * 4)),
           upload(writes),
           upload(counts),
           planes(),
           planes(),
           0,
           int64_t(entries),
           0,
           sequences,
           c,
           sizes.writes,
           hd,
           bf16,
           bf16,
           bf16,
           sizes.entries(),
           0};
  p.gds = {grad,
           bank,
           floats(random_rows(token_bytes)),
           upload(reads),
           planes(),
           int64_t(entries),
           0,
           sequences,
           c,
           sizes.writes,
           hd,
           bf16,
           bf16,
           0};
  for (const void* data :
       {(void*)grad, (void*)bank, (void*)d_u, (void*)d_dv, (void*)p.gwr.delta, (void*)p.gwr.pd,
        (void*)p.gwr.slots, (void*)p.gwr.dpd, (void*)p.gemm.x, (void*)p.pa2.snap, (void*)p.pa2.beta,
        (void*)p.pa2.records, (void*)p.pa2.bpre, (void*)p.pa2.out_eff, (void*)p.pa2.out_g,
        (void*)p.gds.gy, (void*)p.gds.records, (void*)p.gds.dq}) {
    p.allocations.push_back(const_cast<void*>(data));
  }
  check(cudaDeviceSynchronize(), "fill");
  return p;
}

inline void free_problem(Problem& problem) {
  for (void* data : problem.allocations) check(cudaFree(data), "cudaFree");
}

}  // namespace tune
