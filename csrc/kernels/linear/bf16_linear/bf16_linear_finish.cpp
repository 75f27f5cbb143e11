// The tensor maps of a parameter block, from the driver or from those of recent calls.
#include <array>
#include <cstddef>
#include <cstring>

#include "kernels/linear/bf16_linear/bf16_linear_maps.h"
#if defined(SDM_WITH_CUDA)
#include "plancap/cuda/driver.h"
#endif

namespace sdm {

EncodeTensorMap bf16_linear_encode_function() {
#if defined(SDM_WITH_CUDA)
  return reinterpret_cast<EncodeTensorMap>(plancap::cuda::driver().tensor_map_encode);
#else
  return nullptr;  // whoever encodes refuses
#endif
}

namespace {

// Everything that the maps depend on: the block from the addresses on, without the output's.
struct MapKey {
  const uint16_t* weight;
  const uint16_t* x;
  int64_t weight_stride, x_stride;
  int32_t num_rows, num_tokens, depth, tactic;
  bool operator==(const MapKey&) const = default;
};

MapKey key_of(const Bf16LinearParams& p) {
  return {p.weight, p.x, p.weight_stride, p.x_stride, p.num_rows, p.num_tokens, p.depth, p.tactic};
}

uint64_t hash(const MapKey& key) {
  const auto mix = [](uint64_t h, uint64_t v) { return (h ^ v) * 0x9e3779b97f4a7c15; };
  uint64_t h = mix(reinterpret_cast<uint64_t>(key.weight), reinterpret_cast<uint64_t>(key.x));
  h = mix(h ^ h >> 32, static_cast<uint64_t>(key.num_tokens) << 8 | uint64_t(key.tactic));
  return h ^ h >> 32;
}

// Recent maps of this thread: a direct-mapped table, so that a layer stack's calls find theirs.
struct CachedMaps {
  MapKey key{};
  TensorMapBytes weight_map{}, x_map{};
};
constexpr size_t kCachedMaps = 256;

}  // namespace

void bf16_linear_finish(void* block) {
  // The driver writes maps to aligned memory only, and the block may lie anywhere.
  Bf16LinearParams params;
  std::memcpy(&params, block, sizeof(params));
  thread_local std::array<CachedMaps, kCachedMaps> cache;
  const MapKey key = key_of(params);
  CachedMaps& cached = cache[hash(key) % kCachedMaps];
  if (cached.key != key) {
    bf16_linear_encode_maps(bf16_linear_encode_function(), params);
    cached = {key, params.weight_map, params.x_map};
  }
  const auto put = [&](size_t offset, const TensorMapBytes& map) {
    std::memcpy(static_cast<std::byte*>(block) + offset, &map, sizeof(map));
  };
  put(offsetof(Bf16LinearParams, weight_map), cached.weight_map);
  put(offsetof(Bf16LinearParams, x_map), cached.x_map);
}

}  // namespace sdm
