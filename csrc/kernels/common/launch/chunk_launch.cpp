#include "kernels/common/launch/chunk_launch.h"

#include <algorithm>
#include <bit>

#include "kernels/common/launch/row_checks.h"
#include "kernels/common/launch/step_launch.h"

namespace sdm {

void expect_chunks(const char* where, const ChunkShape& shape, int64_t num_chunks) {
  expect_chunk_size(where, shape.chunk_size);
  expect_entries(where, "k_idx", shape.num_writes);
  expect_entries(where, "q_idx", shape.num_reads);
  SDM_EXPECT(shape.num_parallel >= 1, kValue, where, "num_parallel", "at least 1",
             shape.num_parallel);
  SDM_EXPECT(shape.num_tokens >= 1, kValue, where, "num_tokens", "at least 1", shape.num_tokens);
  const int64_t steps = (shape.num_tokens - 1) / shape.chunk_size + 1;
  SDM_EXPECT(shape.first_step >= 0 && shape.first_step < steps, kValue, where, "first_step",
             cat("a step in 0..", steps - 1), shape.first_step);
  expect_num_parallel(where, num_chunks, shape.num_parallel);
  const int64_t most = (steps - shape.first_step) * shape.num_parallel;
  SDM_EXPECT(num_chunks >= 1 && num_chunks <= most, kValue, where, "N", cat("1..", most, " chunks"),
             num_chunks);
}

RowType expect_values(const char* where, const char* argument, const TensorRef& tensor,
                      std::initializer_list<Dim> shape) {
  const std::optional<RowType> type = plain_row_type(tensor.dtype);
  SDM_EXPECT(type, kType, where, argument, "float32 or bfloat16", tensor.describe());
  expect_tensor(where, argument, tensor, tensor.dtype, shape);
  return *type;
}

ValueRows expect_value_rows(const char* where, const char* argument, const TensorRef& tensor,
                            int64_t hd) {
  if (tensor.ndim != 4) {
    const RowType type = expect_values(where, argument, tensor, {"P", "T", hd});
    return {type, tensor.shape[0], tensor.shape[1], 1};
  }
  const RowType type = expect_values(where, argument, tensor, {"B", "T", "H", hd});
  return {type, tensor.shape[0] * tensor.shape[2], tensor.shape[1], tensor.shape[2]};
}

int32_t expect_indices(const char* where, const char* argument, const TensorRef& tensor,
                       std::initializer_list<Dim> shape) {
  const bool legal = tensor.dtype == Dtype::kInt32 || tensor.dtype == Dtype::kInt64;
  SDM_EXPECT(legal, kType, where, argument, "int32 or int64", tensor.describe());
  expect_tensor(where, argument, tensor, tensor.dtype, shape);
  return tensor.dtype == Dtype::kInt64 ? 1 : 0;
}

void expect_event_pairs(const char* where, const char* argument, const TensorRef& tensor,
                        int64_t num_chunks, int64_t events) {
  expect_tensor(where, argument, tensor, Dtype::kFloat64, {num_chunks, events, 2});
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  SDM_EXPECT(address % 16 == 0, kValue, where, argument, "an address that is a multiple of 16",
             cat("one with remainder ", address % 16));
}

plancap::LaunchConfig chunk_config(int64_t num_chunks, int32_t events, int32_t most_threads,
                                   uint32_t shared_bytes) {
  const auto eighth = std::bit_ceil(static_cast<uint32_t>(events) / 8);
  plancap::LaunchConfig config;
  config.grid.x = static_cast<uint32_t>(num_chunks);
  config.block.x = std::clamp<uint32_t>(eighth, 64, static_cast<uint32_t>(most_threads));
  config.shared_bytes = shared_bytes;
  return config;
}

}  // namespace sdm
