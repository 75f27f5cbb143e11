#include <algorithm>
#include <cstddef>

#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/step_launch.h"
#include "kernels/layer/slot_select_grad/slot_select_grad.h"
#include "kernels/layer/slot_select_grad/slot_select_grad_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "slot_select_grad";
constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;

// A member of one side: the field "key_slots".
#define SDM_SIDE_FIELD(side, member, flags)                                      \
  FieldInfo {                                                                    \
    #side "_" #member, plancap::field_type_of<decltype(SlotGradSide::member)>(), \
        static_cast<uint32_t>(offsetof(SlotSelectGradParams, side) +             \
                              offsetof(SlotGradSide, member)),                   \
        static_cast<uint32_t>(sizeof(SlotGradSide::member)), flags               \
  }
#define SDM_SIDE_FIELDS(side)                                                                  \
  SDM_SIDE_FIELD(side, d_weights, plancap::kFieldNullable),                                    \
      SDM_SIDE_FIELD(side, slots, plancap::kFieldNullable),                                    \
      SDM_SIDE_FIELD(side, weights, plancap::kFieldNullable),                                  \
      SDM_SIDE_FIELD(side, norms, plancap::kFieldNullable),                                    \
      SDM_SIDE_FIELD(side, d_scores, plancap::kFieldNullable), SDM_SIDE_FIELD(side, count, 0), \
      SDM_SIDE_FIELD(side, activation, 0), SDM_SIDE_FIELD(side, scale, 0),                     \
      SDM_SIDE_FIELD(side, wide_stores, 0)

constexpr FieldInfo kFields[] = {
    SDM_SIDE_FIELDS(key),
    SDM_SIDE_FIELDS(query),
    SDM_FIELD(SlotSelectGradParams, num_batches),
    SDM_FIELD(SlotSelectGradParams, num_tokens),
    SDM_FIELD(SlotSelectGradParams, num_heads),
    SDM_FIELD(SlotSelectGradParams, num_factors),
    SDM_FIELD(SlotSelectGradParams, widths),
    SDM_FIELD(SlotSelectGradParams, by_parts),
    SDM_FIELD(SlotSelectGradParams, row_type),
    SDM_FIELD(SlotSelectGradParams, by_heads),
    SDM_FIELD(SlotSelectGradParams, by_tokens),
    SDM_FIELD(SlotSelectGradParams, num_columns),
};

// Argument and field names of a side.
struct SideNames {
  const char *d_weights, *slots, *weights, *norms, *d_scores;
};
constexpr SideNames kKeyNames = {"key_d_weights", "key_slots", "key_weights", "key_norms",
                                 "key_d_scores"};
constexpr SideNames kQueryNames = {"query_d_weights", "query_slots", "query_weights", "query_norms",
                                   "query_d_scores"};

void run_host(const void* params) {
  slot_select_grad_host(*static_cast<const SlotSelectGradParams*>(params));
}

// Returns the slots of a row.
int64_t fill_widths(const SlotSelectGradArgs& args, SlotSelectGradParams& params) {
  const auto factors = static_cast<int64_t>(args.widths.size());
  SDM_EXPECT(factors >= 1 && factors <= kMaxFactors, kValue, kName, "widths",
             cat("1..", kMaxFactors, " factors"), factors);
  int64_t slots = 1;
  for (const int64_t width : args.widths) {
    SDM_EXPECT(width >= 1 && width <= kMaxFactorWidth, kValue, kName, "widths",
               cat("1..", kMaxFactorWidth, " columns a factor"), width);
    slots *= width;
    SDM_EXPECT(slots <= kMostRows, kValue, kName, "widths", "fewer than 2^31 slots", slots);
    params.widths[params.num_factors++] = static_cast<int32_t>(width);
  }
  params.num_columns = row_columns(params);
  for (int32_t f = params.num_factors - 1, parts = 1; f >= 0; parts *= params.widths[f--]) {
    params.by_parts[f] = make_divider(parts);
  }
  return slots;
}

void check_side(const SideNames& names, const SlotGradSideArgs& side, int64_t slots,
                const SlotSelectGradParams& params) {
  const int64_t sequences = int64_t{params.num_batches} * params.num_heads;
  const int64_t tokens = params.num_tokens;
  expect_tensor(kName, names.slots, side.slots, Dtype::kInt32, {sequences, tokens, "k"});
  const int64_t count = side.slots.shape[2], most = std::min<int64_t>(kMaxSelected, slots);
  SDM_EXPECT(count >= 1 && count <= most, kValue, kName, names.slots,
             cat("1..", most, " slots a row"), side.slots.describe());
  SDM_EXPECT(sequences <= kMostRows / slots, kValue, kName, names.slots,
             "fewer than 2^31 slots of all sequences", cat(sequences, " times ", slots));
  expect_tensor(kName, names.d_weights, side.d_weights, Dtype::kFloat32,
                {sequences, tokens, count});
  const bool weighted = side.activation != SlotActivation::kNone;
  SDM_EXPECT(side.weights.has_value() == weighted, kValue, kName, names.weights,
             weighted ? "an operand, for the activation" : "none without an activation",
             side.weights ? side.weights->describe() : std::string("none"));
  if (side.weights) {
    expect_tensor(kName, names.weights, *side.weights, Dtype::kFloat32, {sequences, tokens, count});
  }
  const bool normalized = side.activation == SlotActivation::kL2;
  SDM_EXPECT(side.norms.has_value() == normalized, kValue, kName, names.norms,
             normalized ? "an operand, for l2_normalize" : "none without l2_normalize",
             side.norms ? side.norms->describe() : std::string("none"));
  if (side.norms) {
    expect_tensor(kName, names.norms, *side.norms, Dtype::kFloat32, {sequences, tokens});
  }
}

// What B, T and the sides' d_scores say, into the block.
void check_rows(const SlotSelectGradArgs& args, SlotSelectGradParams& params) {
  SDM_EXPECT(args.key || args.query, kValue, kName, "key_d_scores", "keys, queries or both",
             "neither");
  SDM_EXPECT(args.num_heads >= 1 && args.num_heads <= kMostRows, kValue, kName, "num_heads",
             cat("1..", kMostRows), args.num_heads);
  const int64_t columns = args.num_heads * params.num_columns;
  const char* first = args.key ? "key_d_scores" : "query_d_scores";
  const TensorRef& given = args.key ? args.key->d_scores : args.query->d_scores;
  params.row_type = expect_values(kName, first, given, {"B", "T", columns});
  const int64_t batches = given.shape[0], tokens = given.shape[1];
  if (args.key && args.query) {
    expect_tensor(kName, "query_d_scores", args.query->d_scores, given.dtype,
                  {batches, tokens, columns});
  }
  SDM_EXPECT(batches >= 1 && tokens >= 1 && batches <= kMostRows / tokens / args.num_heads, kValue,
             kName, first, "1..2^31 - 1 rows (B*T*H)", given.describe());
  params.num_batches = static_cast<int32_t>(batches);
  params.num_tokens = static_cast<int32_t>(tokens);
  params.num_heads = static_cast<int32_t>(args.num_heads);
  params.by_heads = make_divider(params.num_heads);
  params.by_tokens = make_divider(params.num_tokens);
}

void fill_side(const SideNames& names, const SlotGradSideArgs& args, int64_t slots,
               const SlotSelectGradParams& params, SlotGradSide& side) {
  check_side(names, args, slots, params);
  side.d_weights = static_cast<const float*>(args.d_weights.data);
  side.slots = static_cast<const int32_t*>(args.slots.data);
  side.weights = args.weights ? static_cast<const float*>(args.weights->data) : nullptr;
  side.norms = args.norms ? static_cast<const float*>(args.norms->data) : nullptr;
  side.d_scores = args.d_scores.data;
  side.count = static_cast<int32_t>(args.slots.shape[2]);
  side.activation = args.activation;
  side.scale = args.activation == SlotActivation::kNone ? 1.0f : args.scale;
  const bool pieces = params.num_columns * dtype_bytes(args.d_scores.dtype) % 16 == 0;
  side.wide_stores = pieces && reinterpret_cast<uintptr_t>(args.d_scores.data) % 16 == 0 ? 1 : 0;
}

void check_devices(const plancap::Target& target, const SideNames& names,
                   const SlotGradSideArgs& side) {
  expect_device(kName, names.d_weights, side.d_weights, target.device);
  expect_device(kName, names.slots, side.slots, target.device);
  if (side.weights) expect_device(kName, names.weights, *side.weights, target.device);
  if (side.norms) expect_device(kName, names.norms, *side.norms, target.device);
  expect_device(kName, names.d_scores, side.d_scores, target.device);
}

void push_operands(const SideNames& names, const SlotGradSideArgs& side,
                   std::vector<plancap::Operand>& operands) {
  operands.push_back(whole(names.d_weights, side.d_weights, Access::kRead));
  operands.push_back(whole(names.slots, side.slots, Access::kRead));
  if (side.weights) operands.push_back(whole(names.weights, *side.weights, Access::kRead));
  if (side.norms) operands.push_back(whole(names.norms, *side.norms, Access::kRead));
  operands.push_back(whole(names.d_scores, side.d_scores, Access::kWrite));
}

}  // namespace

const KernelInfo& slot_select_grad_info() {
  static constexpr KernelInfo info = plancap::make_kernel_info<SlotSelectGradParams>(
      kName, kFields, run_host, check_slot_select_grad_plan);
  return info;
}

void slot_select_grad(plancap::Sink& sink, const SlotSelectGradArgs& args) {
  // Check and fill.
  SlotSelectGradParams params{};
  const int64_t slots = fill_widths(args, params);
  check_rows(args, params);
  if (args.key) fill_side(kKeyNames, *args.key, slots, params, params.key);
  if (args.query) fill_side(kQueryNames, *args.query, slots, params, params.query);
  if (args.key) check_devices(sink.target(), kKeyNames, *args.key);
  if (args.query) check_devices(sink.target(), kQueryNames, *args.query);

  // Describe.
  plancap::Launch launch;
  launch.kernel = &slot_select_grad_info();
  launch.params = &params;
  if (args.key) push_operands(kKeyNames, *args.key, launch.operands);
  if (args.query) push_operands(kQueryNames, *args.query, launch.operands);

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, slot_select_grad_geometry(sink.target(), params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
