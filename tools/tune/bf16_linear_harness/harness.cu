#include "harness.h"

namespace sdm::bench {
namespace {

__global__ void fill_kernel(uint16_t* out, size_t count, uint64_t seed) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += stride) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15 + seed * 0xd1342543de82ef95;  // splitmix64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    const float value = static_cast<float>(static_cast<int32_t>((z ^ z >> 31) >> 32)) * 0x1p-31f;
    out[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
  }
}

}  // namespace

void fill_random(const Buffer<uint16_t>& buffer, uint64_t seed) {
  fill_kernel<<<1024, 256>>>(buffer.data(), buffer.count(), seed);
  CHECK_CUDA(cudaGetLastError());
}

Kernels::Kernels(const std::string& folder) {
  for (const Bf16LinearTactic& tactic : kBf16LinearTactics) {
    const std::string entry = bf16_linear_entry(tactic);
    cudaLibrary_t library;
    cudaKernel_t kernel;
    CHECK_CUDA(cudaLibraryLoadFromFile(&library, (folder + "/" + entry + ".cubin").c_str(), nullptr,
                                       nullptr, 0, nullptr, nullptr, 0));
    CHECK_CUDA(cudaLibraryGetKernel(&kernel, library, entry.c_str()));
    const auto function = reinterpret_cast<const void*>(kernel);
    const auto shared = static_cast<int>(bf16_linear_shared_map(tactic).total);
    CHECK_CUDA(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    kernels_.push_back(function);
  }
  cudaDriverEntryPointQueryResult found;
  CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode_, 12000,
                                              cudaEnableDefault, &found));
  cudaDeviceProp properties;
  CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  sm_count_ = properties.multiProcessorCount;
  std::printf("%s, %d SMs, L2 %d MB\n", properties.name, sm_count_, properties.l2CacheSize >> 20);
}

void Kernels::launch(cudaStream_t stream, const Bf16LinearOperands& operands,
                     const Bf16LinearShape& shape, Bf16LinearChoice choice, bool pdl,
                     Bf16LinearOverlap overlap) const {
  Bf16LinearParams params = bf16_linear_fill(operands, shape, choice, overlap);
  bf16_linear_encode_maps(encode_, params);
  const Bf16LinearGrid grid = bf16_linear_grid(shape, choice);
  cudaLaunchAttribute attributes[2];
  unsigned num_attributes = 0;
  if (grid.cluster_x > 1) {
    attributes[num_attributes].id = cudaLaunchAttributeClusterDimension;
    attributes[num_attributes++].val.clusterDim = {grid.cluster_x, 1, 1};
  }
  if (pdl) {
    attributes[num_attributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[num_attributes++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = {grid.x, grid.y, 1};
  config.blockDim = {kBf16LinearThreads, 1, 1};
  config.dynamicSmemBytes = bf16_linear_shared_map(kBf16LinearTactics[choice.tactic]).total;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  void* arguments[] = {&params};
  const cudaError_t error = cudaLaunchKernelExC(&config, kernels_[choice.tactic], arguments);
  if (error == cudaSuccess) return;
  std::printf("launch of %s: %s\n", describe(shape, choice).c_str(), cudaGetErrorString(error));
  std::exit(2);
}

void Kernels::print_capacity() const {
  std::printf("resident blocks by cluster size 1..8:\n");
  for (int32_t tactic = 0; tactic < kNumBf16LinearTactics; ++tactic) {
    std::printf("  %-32s", bf16_linear_entry(kBf16LinearTactics[tactic]).c_str());
    for (unsigned size = 1; size <= 8; ++size) {
      cudaLaunchAttribute attribute;
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {size, 1, 1};
      cudaLaunchConfig_t config{};
      config.gridDim = {size * 132, 1, 1};
      config.blockDim = {kBf16LinearThreads, 1, 1};
      config.dynamicSmemBytes = bf16_linear_shared_map(kBf16LinearTactics[tactic]).total;
      config.attrs = &attribute;
      config.numAttrs = 1;
      int clusters = 0;
      const cudaError_t error =
          cudaOccupancyMaxActiveClusters(&clusters, kernels_[tactic], &config);
      std::printf(" %5d", error == cudaSuccess ? clusters * int(size) : -1);
      cudaGetLastError();
    }
    std::printf("\n");
  }
}

std::vector<Bf16LinearChoice> all_choices() {
  std::vector<Bf16LinearChoice> choices;
  for (int32_t tactic = 0; tactic < kNumBf16LinearTactics; ++tactic) {
    for (int32_t splits = 1; splits <= kBf16LinearMaxCluster; ++splits) {
      if (!bf16_linear_splits_valid(kBf16LinearTactics[tactic], splits)) continue;
      choices.push_back({tactic, splits});
    }
  }
  return choices;
}

std::string name(Bf16LinearChoice choice) {
  return bf16_linear_entry(kBf16LinearTactics[choice.tactic]) + " x" +
         std::to_string(choice.splits);
}

std::string describe(const Bf16LinearShape& shape, Bf16LinearChoice choice) {
  char text[160];
  std::snprintf(text, sizeof text, "M %ld N %ld K %ld, %s", long(shape.num_tokens),
                long(shape.num_rows), long(shape.depth), name(choice).c_str());
  return text;
}

}  // namespace sdm::bench
