#include "kernels/linear/bf16_linear/bf16_linear_operands.h"

#include "plancap/base/error.h"

namespace sdm {

using plancap::Backend;

void expect_bf16_linear_target(const char* where, const plancap::Target& target) {
  SDM_EXPECT(target.backend == Backend::kCuda && target.capability_major == 9, kValue, where, "x",
             "a tensor on a CUDA device of compute capability 9.0",
             target.backend == Backend::kHost ? std::string("a tensor on the cpu")
                                              : cat("compute capability ", target.capability_major,
                                                    ".", target.capability_minor));
}

void expect_bf16_linear_rows(const char* where, const char* argument, const TensorRef& tensor,
                             int64_t most_rows) {
  const auto given = [&] { return tensor.describe(); };
  SDM_EXPECT(tensor.dtype == Dtype::kBFloat16, kType, where, argument, "bfloat16 [any, K]",
             given());
  SDM_EXPECT(tensor.ndim == 2, kValue, where, argument, "bfloat16 [any, K]", given());
  const int64_t rows = tensor.shape[0], depth = tensor.shape[1];
  SDM_EXPECT(rows >= 1 && rows <= most_rows, kValue, where, argument,
             cat("1..", most_rows, " rows"), given());
  SDM_EXPECT(depth >= 8 && depth <= kMaxBf16LinearDepth && depth % 8 == 0, kValue, where, argument,
             cat("K a multiple of 8 up to ", kMaxBf16LinearDepth), given());
  SDM_EXPECT(tensor.strides[1] == 1, kValue, where, argument, "stride 1 along K", given());
  SDM_EXPECT(rows == 1 || (tensor.strides[0] >= depth && tensor.strides[0] % 8 == 0), kValue, where,
             argument, "rows that do not overlap and start at multiples of 16 bytes", given());
  SDM_EXPECT(reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0, kValue, where, argument,
             "an address that is a multiple of 16",
             cat("one with remainder ", reinterpret_cast<uintptr_t>(tensor.data) % 16));
}

void expect_bf16_linear_choice(const char* where, Bf16LinearChoice choice) {
  SDM_EXPECT(choice.tactic >= 0 && choice.tactic < kNumBf16LinearTactics, kValue, where, "tactic",
             cat("0..", kNumBf16LinearTactics - 1), choice.tactic);
  const Bf16LinearTactic& tactic = kBf16LinearTactics[choice.tactic];
  SDM_EXPECT(bf16_linear_splits_valid(tactic, choice.splits), kValue, where, "splits",
             cat("one of ", bf16_linear_splits_words(tactic), " for ", bf16_linear_entry(tactic)),
             choice.splits);
}

int64_t bf16_linear_row_stride(const TensorRef& tensor) {
  return tensor.shape[0] == 1 ? tensor.shape[1] : tensor.strides[0];
}

plancap::Operand bf16_linear_operand(const char* field, const char* name, const TensorRef& tensor,
                                     plancap::Access access, uint32_t align_bytes) {
  plancap::Operand operand{field, name, tensor, access};
  operand.align = align_bytes;
  return operand;
}

plancap::LaunchConfig bf16_linear_config(const Bf16LinearShape& shape, Bf16LinearChoice choice,
                                         bool pdl) {
  const Bf16LinearGrid grid = bf16_linear_grid(shape, choice);
  plancap::LaunchConfig config;
  config.grid = {grid.x, grid.y, 1};
  config.block = {kBf16LinearThreads, 1, 1};
  config.cluster = {grid.cluster_x, 1, 1};
  config.shared_bytes = bf16_linear_shared_map(kBf16LinearTactics[choice.tactic]).total;
  config.programmatic = pdl;
  return config;
}

}  // namespace sdm
