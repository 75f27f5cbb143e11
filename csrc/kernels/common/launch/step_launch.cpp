#include "kernels/common/launch/step_launch.h"

#include <limits>

#include "kernels/common/launch/row_checks.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/records/records.h"
#include "kernels/common/records/row_weights.h"

namespace sdm {

using plancap::Access;
using plancap::Operand;
using plancap::PatchKind;

namespace {

void expect_alignment(const char* where, const char* argument, const TensorRef& tensor,
                      size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  SDM_EXPECT(address % bytes == 0, kValue, where, argument,
             cat("an address that is a multiple of ", bytes),
             cat("one with remainder ", address % bytes));
}

}  // namespace

void expect_num_parallel(const char* where, int64_t num_chunks, int64_t num_parallel) {
  SDM_EXPECT(num_parallel >= 1 && num_chunks % num_parallel == 0, kValue, where, "num_parallel",
             cat("at least 1 and a divisor of the ", num_chunks, " chunks"), num_parallel);
  SDM_EXPECT(num_chunks <= std::numeric_limits<int32_t>::max(), kValue, where, "num_parallel",
             "fewer than 2^31 chunks", num_chunks);
}

StepRange step_range(const char* where, int64_t num_chunks, int64_t num_parallel, int64_t ti,
                     std::optional<int64_t> steps) {
  expect_num_parallel(where, num_chunks, num_parallel);
  const int64_t available = num_chunks / num_parallel;
  if (!steps) {
    SDM_EXPECT(ti >= 0 && ti < available, kValue, where, "ti", cat("a step in 0..", available - 1),
               ti);
    return {static_cast<int32_t>(ti), 1, {}};
  }
  SDM_EXPECT(*steps >= 1 && *steps <= available, kValue, where, "steps",
             cat("1..", available, " (N / num_parallel)"), *steps);
  return {static_cast<int32_t>(*steps - 1),
          static_cast<uint32_t>(*steps),
          {{"step", PatchKind::kInt32, 0, 1, 0, *steps - 1}}};
}

plancap::Launch step_launch(const plancap::KernelInfo& kernel, const void* params,
                            const StepRange& range) {
  plancap::Launch launch;
  launch.kernel = &kernel;
  launch.params = params;
  launch.steps = range.steps;
  launch.patches = range.patches;
  return launch;
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

void expect_token_rows(const char* where, const char* argument, const TensorRef& tensor,
                       int64_t num_chunks, int64_t chunk_size, int64_t width, Dtype dtype) {
  if (tensor.ndim == 3) {
    expect_tensor(where, argument, tensor, dtype, {num_chunks, chunk_size, width});
  } else {
    expect_tensor(where, argument, tensor, dtype, {num_chunks * chunk_size, width});
  }
}

void expect_row_weights(const char* where, const char* argument, const TensorRef& tensor) {
  expect_tensor(where, argument, tensor, Dtype::kInt32, {"N*C", "W+R", 2});
  expect_alignment(where, argument, tensor, alignof(RowWeight));
}

RowType expect_bank_rows(const char* where, const char* argument, const TensorRef& tensor) {
  const std::optional<RowType> type = plain_row_type(tensor.dtype);
  SDM_EXPECT(type, kType, where, argument, "float32 or bfloat16 [rows, hd]", tensor.describe());
  expect_tensor(where, argument, tensor, tensor.dtype, {"rows", "hd"});
  expect_head_dim(where, tensor.shape[1]);
  SDM_EXPECT(tensor.shape[0] >= 1 && tensor.shape[0] <= std::numeric_limits<int32_t>::max(), kValue,
             where, argument, "at least 1 and fewer than 2^31 rows", tensor.describe());
  return *type;
}

RowType expect_grad_of_bank(const char* where, const TensorRef& grad, const TensorRef& bank) {
  const std::optional<RowType> type = plain_row_type(grad.dtype);
  const bool legal = type && (type == RowType::kFloat32 || grad.dtype == bank.dtype);
  SDM_EXPECT(legal, kType, where, "grad",
             bank.dtype == Dtype::kBFloat16 ? "bfloat16 or float32 (the bank is bfloat16)"
                                            : "float32 (the bank is float32)",
             grad.describe());
  expect_tensor(where, "grad", grad, grad.dtype, {bank.shape[0], bank.shape[1]});
  return *type;
}

void expect_records(const char* where, const char* argument, const TensorRef& tensor,
                    int64_t entries) {
  expect_tensor(where, argument, tensor, Dtype::kInt32, {"N", entries, 4});
  expect_alignment(where, argument, tensor, alignof(Record));
}

void expect_planes(const char* where, const char* argument, const TensorRef& tensor, int64_t hd,
                   int64_t entries) {
  const int64_t slices = num_slices(static_cast<int32_t>(hd));
  if (slices == 1) {
    expect_numel(where, argument, tensor, Dtype::kFloat32, entries);
  } else {
    expect_tensor(where, argument, tensor, Dtype::kFloat32, {slices, entries});
  }
}

void expect_num_tokens(const char* where, int64_t num_tokens, int64_t num_steps,
                       int64_t chunk_size) {
  const int64_t most = num_steps * chunk_size;
  SDM_EXPECT(num_tokens > most - chunk_size && num_tokens <= most, kValue, where, "num_tokens",
             cat(most - chunk_size + 1, "..", most, " for ", num_steps, " steps of ", chunk_size),
             num_tokens);
}

Operand planes_operand(const char* name, const TensorRef& tensor, int64_t hd, int64_t num_steps) {
  const bool one_piece = num_slices(static_cast<int32_t>(hd)) == 1;
  return one_piece ? per_step(name, tensor, Access::kWrite, num_steps)
                   : whole(name, tensor, Access::kWrite);
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

}  // namespace sdm
