#include "kernels/linear/bf16_linear/bf16_linear.h"
#include "kernels/linear/bf16_linear/bf16_linear_fill.h"
#include "kernels/linear/bf16_linear/bf16_linear_maps.h"
#include "kernels/linear/bf16_linear/bf16_linear_operands.h"
#include "plancap/base/error.h"

namespace sdm {
namespace {

using plancap::Access;
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

void check(const plancap::Target& target, const Bf16LinearArgs& args) {
  expect_bf16_linear_target(kName, target);
  expect_bf16_linear_rows(kName, "x", args.x, kMaxBf16LinearTokens);
  expect_bf16_linear_rows(kName, "weight", args.weight, kMaxBf16LinearRows);
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
  expect_bf16_linear_choice(kName, *args.choice);
  return *args.choice;
}

Bf16LinearOperands addresses(const Bf16LinearArgs& args) {
  Bf16LinearOperands operands;
  operands.weight = static_cast<const uint16_t*>(args.weight.data);
  operands.x = static_cast<const uint16_t*>(args.x.data);
  operands.bias = args.bias ? static_cast<const uint16_t*>(args.bias->data) : nullptr;
  operands.y = static_cast<uint16_t*>(args.y.data);
  operands.weight_stride = bf16_linear_row_stride(args.weight);
  operands.x_stride = bf16_linear_row_stride(args.x);
  operands.y_stride = args.weight.shape[0];
  return operands;
}

plancap::Operand aligned(const char* name, const TensorRef& tensor, Access access,
                         uint32_t align_bytes) {
  return bf16_linear_operand(name, name, tensor, access, align_bytes);
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
  launch.config = bf16_linear_config(shape, choice, args.pdl);
  sink.launch(launch);
}

}  // namespace sdm
