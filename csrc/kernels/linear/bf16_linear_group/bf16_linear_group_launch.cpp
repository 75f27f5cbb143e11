#include <functional>

#include "kernels/linear/bf16_linear/bf16_linear_operands.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_fields.h"
#include "kernels/linear/bf16_linear_group/bf16_linear_group_fill.h"
#include "plancap/base/error.h"

namespace sdm {
namespace {

namespace fields = bf16_linear_group_fields;

using plancap::Access;
using plancap::KernelInfo;
using Member = Bf16LinearGroupArgs::Member;

constexpr const char* kName = "bf16_linear_group";

void check_member(const plancap::Target& target, const Member& member, int64_t i, int64_t m,
                  int64_t k) {
  const char* weight = fields::kWeight[i];
  expect_bf16_linear_rows(kName, weight, member.weight, kMaxBf16LinearRows);
  SDM_EXPECT(member.weight.shape[1] == k, kValue, kName, weight, cat("bfloat16 [any, ", k, "]"),
             member.weight.describe());
  const int64_t n = member.weight.shape[0];
  if (member.bias) expect_tensor(kName, fields::kBias[i], *member.bias, Dtype::kBFloat16, {n});
  expect_tensor(kName, fields::kY[i], member.y, Dtype::kBFloat16, {m, n});
  expect_device(kName, weight, member.weight, target.device);
  if (member.bias) expect_device(kName, fields::kBias[i], *member.bias, target.device);
  expect_device(kName, fields::kY[i], member.y, target.device);
}

// Memory from the first element to the last.
struct Span {
  const char* name;
  const char* begin;
  const char* end;
};

Span span_of(const char* name, const TensorRef& tensor) {
  int64_t last = 0;
  for (int i = 0; i < tensor.ndim; ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  const auto* begin = static_cast<const char*>(tensor.data);
  return {name, begin, begin + (last + 1) * dtype_bytes(tensor.dtype)};
}

// Blocks run in any order, so what one of them writes must be nobody else's.
void check_apart(const Bf16LinearGroupArgs& args) {
  std::vector<Span> spans = {span_of("x", args.x)};
  for (size_t i = 0; i < args.members.size(); ++i) {
    const Member& member = args.members[i];
    spans.push_back(span_of(fields::kWeight[i], member.weight));
    if (member.bias) spans.push_back(span_of(fields::kBias[i], *member.bias));
  }
  const std::less<const char*> before;
  for (size_t i = 0; i < args.members.size(); ++i) {
    const Span y = span_of(fields::kY[i], args.members[i].y);
    for (const Span& other : spans) {
      SDM_EXPECT(!before(y.begin, other.end) || !before(other.begin, y.end), kValue, kName, y.name,
                 cat("memory apart from ", other.name), "memory that overlaps it");
    }
    spans.push_back(y);
  }
}

void check(const plancap::Target& target, const Bf16LinearGroupArgs& args) {
  expect_bf16_linear_target(kName, target);
  const auto count = static_cast<int64_t>(args.members.size());
  SDM_EXPECT(count >= 1 && count <= kMaxBf16LinearMembers, kValue, kName, "weights",
             cat("1..", kMaxBf16LinearMembers, " weights"), count);
  expect_bf16_linear_rows(kName, "x", args.x, kMaxBf16LinearTokens);
  expect_device(kName, "x", args.x, target.device);
  for (int64_t i = 0; i < count; ++i) {
    check_member(target, args.members[i], i, args.x.shape[0], args.x.shape[1]);
  }
  check_apart(args);
}

Bf16LinearGroupShape shape_of(const Bf16LinearGroupArgs& args) {
  Bf16LinearGroupShape shape{args.x.shape[0], args.x.shape[1]};
  for (const Member& member : args.members) {
    shape.num_rows[shape.num_members++] = member.weight.shape[0];
  }
  return shape;
}

Bf16LinearChoice choose(const plancap::Target& target, const Bf16LinearGroupArgs& args,
                        const Bf16LinearGroupShape& shape) {
  if (!args.choice) return bf16_linear_group_pick(shape, target.sm_count);
  expect_bf16_linear_choice(kName, *args.choice);
  SDM_EXPECT(bf16_linear_group_has(args.choice->tactic), kValue, kName, "tactic",
             cat("one that groups are compiled for: ", bf16_linear_group_tactics_words()),
             args.choice->tactic);
  return *args.choice;
}

const uint16_t* elements(const std::optional<TensorRef>& tensor) {
  return tensor ? static_cast<const uint16_t*>(tensor->data) : nullptr;
}

Bf16LinearGroupOperands addresses(const Bf16LinearGroupArgs& args) {
  Bf16LinearGroupOperands operands;
  operands.x = elements(args.x);
  operands.x_stride = bf16_linear_row_stride(args.x);
  for (size_t i = 0; i < args.members.size(); ++i) {
    const Member& member = args.members[i];
    operands.members[i] = {elements(member.weight), elements(member.bias),
                           static_cast<uint16_t*>(member.y.data),
                           bf16_linear_row_stride(member.weight)};
  }
  return operands;
}

std::vector<plancap::Operand> operands_of(const Bf16LinearGroupArgs& args,
                                          const Bf16LinearGroupParams& params) {
  const auto named = [](const char* name, const TensorRef& tensor, Access access, uint32_t align) {
    return bf16_linear_operand(name, name, tensor, access, align);
  };
  std::vector<plancap::Operand> operands = {
      bf16_linear_operand("x", fields::kXOperand, args.x, Access::kRead, 16)};
  for (size_t i = 0; i < args.members.size(); ++i) {
    const Member& member = args.members[i];
    const bool paired = params.paired_stores >> i & 1;
    operands.push_back(named(fields::kWeight[i], member.weight, Access::kRead, 16));
    if (member.bias) operands.push_back(named(fields::kBias[i], *member.bias, Access::kRead, 2));
    operands.push_back(named(fields::kY[i], member.y, Access::kWrite, paired ? 4 : 2));
  }
  return operands;
}

}  // namespace

const KernelInfo& bf16_linear_group_info() {
  static constexpr KernelInfo info = plancap::with_early(
      plancap::make_kernel_info<Bf16LinearGroupParams>(
          kName, fields::kFields, nullptr, check_bf16_linear_group_plan, bf16_linear_group_finish),
      fields::kWeight);  // loaded before the wait, as bf16_linear's
  return info;
}

void bf16_linear_group(plancap::Sink& sink, const Bf16LinearGroupArgs& args) {
  // Check.
  check(sink.target(), args);

  // Choose.
  const Bf16LinearGroupShape shape = shape_of(args);
  const Bf16LinearChoice choice = choose(sink.target(), args, shape);

  // Fill.
  const Bf16LinearGroupParams params = bf16_linear_group_fill(addresses(args), shape, choice);

  // Launch.
  plancap::Launch launch;
  launch.kernel = &bf16_linear_group_info();
  launch.entry = bf16_linear_group_entry(choice.tactic);
  launch.params = &params;
  launch.operands = operands_of(args, params);
  launch.config =
      bf16_linear_config(bf16_linear_group_as_one(shape, choice.tactic), choice, args.pdl);
  sink.launch(launch);
}

}  // namespace sdm
