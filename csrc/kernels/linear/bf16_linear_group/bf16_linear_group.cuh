// The device side of bf16_linear_group: bf16_linear's, in which a block first finds its weight. Of
// the operands only weights are loaded before the wait. See DESIGN.md beside this file.
#pragma once
#include "kernels/linear/bf16_linear/bf16_linear.cuh"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_params.h"

namespace sdm::bf16_linear_device {

// A member's share of the launch's parameters, as the device code of one weight names them.
struct GroupMember {
  const TensorMapBytes& weight_map;
  const TensorMapBytes& x_map;
  const uint16_t* bias;
  uint16_t* y;
  int64_t y_stride;
  int32_t num_rows, num_tokens;
  int32_t depth_tiles, splits, split_inverse;
  int32_t paired_store;
  int32_t trigger_lead, prefetch_tiles;
  uint32_t first_tile;

  __device__ __forceinline__ GroupMember(const Bf16LinearGroupParams& all, int32_t i)
      : weight_map(all.weight_maps[i]),
        x_map(all.x_map),
        bias(all.bias[i]),
        y(all.y[i]),
        y_stride(all.num_rows[i]),
        num_rows(all.num_rows[i]),
        num_tokens(all.num_tokens),
        depth_tiles(all.depth_tiles),
        splits(all.splits),
        split_inverse(all.split_inverse),
        paired_store(all.paired_stores >> i & 1),
        trigger_lead(all.trigger_lead),
        prefetch_tiles(all.prefetch_tiles),
        first_tile(static_cast<uint32_t>(all.first_tile[i])) {}
};

__device__ __forceinline__ uint32_t first_row_tile(const GroupMember& member) {
  return member.first_tile;
}

// One block.
template <int index>
__device__ __forceinline__ void run_group(const Bf16LinearGroupParams& all) {
  const uint32_t row_tile = bf16_linear_over(blockIdx.x, all.split_inverse);
  run<index>(GroupMember(all, bf16_linear_group_member(all.first_tile, row_tile)));
}

}  // namespace sdm::bf16_linear_device

// One device function, `name`, for row `index` of the tactic table.
#define SDM_BF16_LINEAR_GROUP_KERNEL(name, index)                                              \
  extern "C" __global__ void __launch_bounds__(                                                \
      sdm::kBf16LinearThreads, sdm::bf16_linear_blocks_per_sm(sdm::kBf16LinearTactics[index])) \
      name(const __grid_constant__ sdm::Bf16LinearGroupParams params) {                        \
    sdm::bf16_linear_device::run_group<index>(params);                                         \
  }
