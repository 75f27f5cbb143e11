#include "kernels/common/step_launch.h"

#include <limits>

namespace sdm {

using plancap::Access;
using plancap::LaunchConfig;
using plancap::Operand;
using plancap::PatchKind;

void expect_num_parallel(const char* where, int64_t num_chunks, int64_t num_parallel) {
  SDM_EXPECT(num_parallel >= 1 && num_chunks % num_parallel == 0, kValue, where, "num_parallel",
             cat("at least 1 and a divisor of the ", num_chunks, " chunks"), num_parallel);
  SDM_EXPECT(num_chunks <= std::numeric_limits<int32_t>::max(), kValue, where, "num_parallel",
             "fewer than 2^31 chunks", num_chunks);
}

StepRange step_range(const char* where, int64_t num_chunks, int64_t num_parallel, int64_t ti,
                     int64_t steps) {
  expect_num_parallel(where, num_chunks, num_parallel);
  const int64_t available = num_chunks / num_parallel;
  if (steps == 0) {
    SDM_EXPECT(ti >= 0 && ti < available, kValue, where, "ti", cat("a step in 0..", available - 1),
               ti);
    return {static_cast<int32_t>(ti), 1, {}};
  }
  SDM_EXPECT(steps >= 1 && steps <= available, kValue, where, "steps",
             cat("1..", available, " (N / num_parallel)"), steps);
  return {static_cast<int32_t>(steps - 1),
          static_cast<uint32_t>(steps),
          {{"step", PatchKind::kInt32, 0, 1, 0, steps - 1}}};
}

void expect_chunk_size(const char* where, int64_t chunk_size) {
  SDM_EXPECT(chunk_size >= 1 && chunk_size <= 256, kValue, where, "chunk_size", "1..256",
             chunk_size);
}

void expect_entries(const char* where, const char* argument, int64_t entries) {
  SDM_EXPECT(entries >= 1 && entries <= 256, kValue, where, argument, "1..256", entries);
}

void expect_head_dim(const char* where, int64_t hd) {
  SDM_EXPECT(hd >= 1 && hd <= (1 << 20), kValue, where, "hd", "1..2^20 columns", hd);
}

Operand per_step(const char* name, const TensorRef& tensor, Access access, int64_t num_steps) {
  Operand operand = whole(name, tensor, access);
  operand.step_bytes = tensor.bytes() / static_cast<uint64_t>(num_steps);
  operand.step_stride = operand.step_bytes;
  return operand;
}

Operand whole(const char* name, const TensorRef& tensor, Access access) {
  Operand operand{};
  operand.field = name;
  operand.name = name;
  operand.tensor = tensor;
  operand.access = access;
  operand.align = dtype_bytes(tensor.dtype);
  return operand;
}

LaunchConfig host_config(bool empty) {
  LaunchConfig config;
  config.grid.x = empty ? 0 : 1;
  return config;
}

}  // namespace sdm
