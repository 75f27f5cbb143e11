#include "kernels/common/launch/step_launch.h"
#include "kernels/linear/bf16_linear/bf16_linear.h"
#include "kernels/linear/bf16_linear/bf16_linear_fill.h"
#include "kernels/linear/bf16_linear/bf16_linear_maps.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::Backend;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "bf16_linear";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(Bf16LinearParams, weight_map),     SDM_FIELD(Bf16LinearParams, x_map),
    SDM_FIELD(Bf16LinearParams, weight),         SDM_FIELD(Bf16LinearParams, x),
    SDM_NULLABLE_FIELD(Bf16LinearParams, bias),  SDM_FIELD(Bf16LinearParams, y),
    SDM_FIELD(Bf16LinearParams, weight_stride),  SDM_FIELD(Bf16LinearParams, x_stride),
    SDM_FIELD(Bf16LinearParams, y_stride),       SDM_FIELD(Bf16LinearParams, num_rows),
    SDM_FIELD(Bf16LinearParams, num_tokens),     SDM_FIELD(Bf16LinearParams, depth),
    SDM_FIELD(Bf16LinearParams, depth_tiles),    SDM_FIELD(Bf16LinearParams, splits),
    SDM_FIELD(Bf16LinearParams, split_inverse),  SDM_FIELD(Bf16LinearParams, paired_store),
    SDM_FIELD(Bf16LinearParams, tactic),         SDM_FIELD(Bf16LinearParams, trigger_lead),
    SDM_FIELD(Bf16LinearParams, prefetch_tiles),
};

// Loaded before the wait (bf16_linear.cuh).
constexpr const char* kEarly[] = {"weight"};

// A [rows, K] operand that the copy engine can read.
void expect_rows(const char* argument, const TensorRef& tensor, int64_t most_rows) {
  const auto given = [&] { return tensor.describe(); };
  SDM_EXPECT(tensor.dtype == Dtype::kBFloat16, kType, kName, argument, "bfloat16 [any, K]",
             given());
  SDM_EXPECT(tensor.ndim == 2, kValue, kName, argument, "bfloat16 [any, K]", given());
  const int64_t rows = tensor.shape[0], depth = tensor.shape[1];
  SDM_EXPECT(rows >= 1 && rows <= most_rows, kValue, kName, argument,
             cat("1..", most_rows, " rows"), given());
  SDM_EXPECT(depth >= 8 && depth <= kMaxBf16LinearDepth && depth % 8 == 0, kValue, kName, argument,
             cat("K a multiple of 8 up to ", kMaxBf16LinearDepth), given());
  SDM_EXPECT(tensor.strides[1] == 1, kValue, kName, argument, "stride 1 along K", given());
  SDM_EXPECT(rows == 1 || (tensor.strides[0] >= depth && tensor.strides[0] % 8 == 0), kValue, kName,
             argument, "rows that do not overlap and start at multiples of 16 bytes", given());
  SDM_EXPECT(reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0, kValue, kName, argument,
             "an address that is a multiple of 16",
             cat("one with remainder ", reinterpret_cast<uintptr_t>(tensor.data) % 16));
}

void check(const plancap::Target& target, const Bf16LinearArgs& args) {
  SDM_EXPECT(target.backend == Backend::kCuda && target.capability_major == 9, kValue, kName, "x",
             "a tensor on a CUDA device of compute capability 9.0",
             target.backend == Backend::kHost ? std::string("a tensor on the cpu")
                                              : cat("compute capability ", target.capability_major,
                                                    ".", target.capability_minor));
  expect_rows("x", args.x, kMaxBf16LinearTokens);
  expect_rows("weight", args.weight, kMaxBf16LinearRows);
  const int64_t m = args.x.shape[0], n = args.weight.shape[0], k = args.x.shape[1];
  SDM_EXPECT(args.weight.shape[1] == k, kValue, kName, "weight", cat("bfloat16 [any, ", k, "]"),
             args.weight.describe());
  if (args.bias) expect_tensor(kName, "bias", *args.bias, Dtype::kBFloat16, {n});
  expect_tensor(kName, "y", args.y, Dtype::kBFloat16, {m, n});
  expect_device(kName, "x", args.x, target.device);
  expect_device(kName, "weight", args.weight, target.device);
  if (args.bias) expect_device(kName, "bias", *args.bias, target.device);
  expect_device(kName, "y", args.y, target.device);
}

Bf16LinearChoice choose(const plancap::Target& target, const Bf16LinearArgs& args,
                        const Bf16LinearShape& shape) {
  if (!args.choice) return bf16_linear_pick(shape, target.sm_count);
  const Bf16LinearChoice choice = *args.choice;
  SDM_EXPECT(choice.tactic >= 0 && choice.tactic < kNumBf16LinearTactics, kValue, kName, "tactic",
             cat("0..", kNumBf16LinearTactics - 1), choice.tactic);
  const Bf16LinearTactic& tactic = kBf16LinearTactics[choice.tactic];
  SDM_EXPECT(bf16_linear_splits_valid(tactic, choice.splits), kValue, kName, "splits",
             cat("one of ", bf16_linear_splits_words(tactic), " for ", bf16_linear_entry(tactic)),
             choice.splits);
  return choice;
}

// The distance of rows; with one row any multiple of 16 bytes will do.
int64_t row_stride(const TensorRef& tensor) {
  return tensor.shape[0] == 1 ? tensor.shape[1] : tensor.strides[0];
}

Bf16LinearOperands addresses(const Bf16LinearArgs& args) {
  Bf16LinearOperands operands;
  operands.weight = static_cast<const uint16_t*>(args.weight.data);
  operands.x = static_cast<const uint16_t*>(args.x.data);
  operands.bias = args.bias ? static_cast<const uint16_t*>(args.bias->data) : nullptr;
  operands.y = static_cast<uint16_t*>(args.y.data);
  operands.weight_stride = row_stride(args.weight);
  operands.x_stride = row_stride(args.x);
  operands.y_stride = args.weight.shape[0];
  return operands;
}

plancap::Operand aligned(const char* name, const TensorRef& tensor, Access access,
                         uint32_t align_bytes) {
  plancap::Operand operand = whole(name, tensor, access);
  operand.align = align_bytes;
  return operand;
}

plancap::LaunchConfig make_config(const Bf16LinearShape& shape, Bf16LinearChoice choice, bool pdl) {
  const Bf16LinearGrid grid = bf16_linear_grid(shape, choice);
  plancap::LaunchConfig config;
  config.grid = {grid.x, grid.y, 1};
  config.block = {kBf16LinearThreads, 1, 1};
  config.cluster = {grid.cluster_x, 1, 1};
  config.shared_bytes = bf16_linear_shared_map(kBf16LinearTactics[choice.tactic]).total;
  config.programmatic = pdl;
  return config;
}

}  // namespace

const KernelInfo& bf16_linear_info() {
  static constexpr KernelInfo info =
      plancap::with_early(plancap::make_kernel_info<Bf16LinearParams>(
                              kName, kFields, nullptr, check_bf16_linear_plan, bf16_linear_finish),
                          kEarly);
  return info;
}

void bf16_linear(plancap::Sink& sink, const Bf16LinearArgs& args) {
  // Check.
  check(sink.target(), args);

  // Choose.
  const Bf16LinearShape shape{args.x.shape[0], args.weight.shape[0], args.x.shape[1]};
  const Bf16LinearChoice choice = choose(sink.target(), args, shape);

  // Fill.
  const Bf16LinearParams params = bf16_linear_fill(addresses(args), shape, choice);

  // Launch.
  plancap::Launch launch;
  launch.kernel = &bf16_linear_info();
  launch.entry = bf16_linear_entry(kBf16LinearTactics[choice.tactic]);
  launch.params = &params;
  launch.operands = {aligned("weight", args.weight, Access::kRead, 16),
                     aligned("x", args.x, Access::kRead, 16),
                     aligned("y", args.y, Access::kWrite, params.paired_store ? 4 : 2)};
  if (args.bias) launch.operands.push_back(aligned("bias", *args.bias, Access::kRead, 2));
  launch.config = make_config(shape, choice, args.pdl);
  sink.launch(launch);
}

}  // namespace sdm
