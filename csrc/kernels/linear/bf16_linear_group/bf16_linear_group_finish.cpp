// The tensor maps of a parameter block, from the driver or from those of recent calls.
#include <array>
#include <cstddef>
#include <cstring>

#include "kernels/linear/bf16_linear/bf16_linear_maps.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_fields.h"
#include "plancap/base/error.h"

namespace sdm {
namespace {

constexpr const char* kName = "bf16_linear_group";

// Everything that a map depends on.
struct MatrixKey {
  const uint16_t* address;
  int64_t row_stride;
  int32_t rows, columns, box_rows;
  bool operator==(const MatrixKey&) const = default;
};

uint64_t hash(const MatrixKey& key) {
  const auto mix = [](uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15;
    return h ^ h >> 32;
  };
  const uint64_t h = mix(reinterpret_cast<uint64_t>(key.address), static_cast<uint64_t>(key.rows));
  return mix(h, static_cast<uint64_t>(key.box_rows));
}

// Recent maps of this thread: a direct-mapped table, as bf16_linear's, of single matrices: groups
// share an x or a weight with others.
struct CachedMap {
  MatrixKey key{};
  TensorMapBytes map{};
};
constexpr size_t kCachedMaps = 512;

const TensorMapBytes& map_of(const char* operand, const MatrixKey& key) {
  thread_local std::array<CachedMap, kCachedMaps> cache;
  CachedMap& cached = cache[hash(key) % kCachedMaps];
  if (cached.key != key) {
    TensorMapBytes map;  // the driver writes aligned memory only
    bf16_linear_encode_matrix(bf16_linear_encode_function(), kName, operand, map, key.address,
                              key.rows, key.columns, key.row_stride, key.box_rows);
    cached = {key, map};
  }
  return cached.map;
}

}  // namespace

void bf16_linear_group_finish(void* block) {
  using Params = Bf16LinearGroupParams;
  Params params;  // the block may lie anywhere
  std::memcpy(&params, block, sizeof(params));
  // A plan's block comes from a file.
  SDM_EXPECT(params.tactic >= 0 && params.tactic < kNumBf16LinearTactics, kPlan, kName, "tactic",
             cat("0..", kNumBf16LinearTactics - 1), params.tactic);
  SDM_EXPECT(params.num_members >= 1 && params.num_members <= kMaxBf16LinearMembers, kPlan, kName,
             "num_members", cat("1..", kMaxBf16LinearMembers), params.num_members);
  const Bf16LinearTactic& tactic = kBf16LinearTactics[params.tactic];
  const auto put = [&](size_t offset, const TensorMapBytes& map) {
    std::memcpy(static_cast<std::byte*>(block) + offset, &map, sizeof(map));
  };
  put(offsetof(Params, x_map), map_of("x", {params.x, params.x_stride, params.num_tokens,
                                            params.depth, bf16_linear_token_slice(tactic)}));
  for (int32_t i = 0; i < params.num_members; ++i) {
    put(offsetof(Params, weight_maps) + i * sizeof(TensorMapBytes),
        map_of(bf16_linear_group_fields::kWeight[i],
               {params.weight[i], params.weight_stride[i], params.num_rows[i], params.depth,
                tactic.rows}));
  }
}

}  // namespace sdm
