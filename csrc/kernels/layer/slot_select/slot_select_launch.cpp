#include <algorithm>
#include <cstddef>

#include "kernels/common/launch/row_checks.h"
#include "kernels/common/launch/step_launch.h"
#include "kernels/layer/slot_select/slot_select.h"
#include "kernels/layer/slot_select/slot_select_block.h"
#include "kernels/layer/slot_select/slot_select_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::FieldType;
using plancap::KernelInfo;

constexpr const char* kName = "slot_select";
constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;

// A member of one side: the field "key_scores".
#define SDM_SIDE_FIELD(side, member, flags)                                        \
  FieldInfo {                                                                      \
    #side "_" #member, plancap::field_type_of<decltype(SlotSelectSide::member)>(), \
        static_cast<uint32_t>(offsetof(SlotSelectParams, side) +                   \
                              offsetof(SlotSelectSide, member)),                   \
        static_cast<uint32_t>(sizeof(SlotSelectSide::member)), flags               \
  }
#define SDM_SIDE_FIELDS(side)                                                                      \
  SDM_SIDE_FIELD(side, scores, plancap::kFieldNullable),                                           \
      SDM_SIDE_FIELD(side, positions, plancap::kFieldNullable),                                    \
      SDM_SIDE_FIELD(side, slots, plancap::kFieldNullable),                                        \
      SDM_SIDE_FIELD(side, weights, plancap::kFieldNullable),                                      \
      SDM_SIDE_FIELD(side, norms, plancap::kFieldNullable), SDM_SIDE_FIELD(side, batch_stride, 0), \
      SDM_SIDE_FIELD(side, token_stride, 0), SDM_SIDE_FIELD(side, count, 0),                       \
      SDM_SIDE_FIELD(side, candidates, 0), SDM_SIDE_FIELD(side, activation, 0),                    \
      SDM_SIDE_FIELD(side, scale, 0)

constexpr FieldInfo kFields[] = {
    SDM_SIDE_FIELDS(key),
    SDM_SIDE_FIELDS(query),
    SDM_FIELD(SlotSelectParams, num_batches),
    SDM_FIELD(SlotSelectParams, num_tokens),
    SDM_FIELD(SlotSelectParams, num_heads),
    SDM_FIELD(SlotSelectParams, num_factors),
    SDM_FIELD(SlotSelectParams, widths),
    SDM_FIELD(SlotSelectParams, row_type),
    SDM_FIELD(SlotSelectParams, by_heads),
    SDM_FIELD(SlotSelectParams, by_tokens),
    SDM_FIELD(SlotSelectParams, key_wide_loads),
    SDM_FIELD(SlotSelectParams, query_wide_loads),
};

// Loaded before the wait (slot_select.cuh).
constexpr const char* kEarly[] = {"key_positions", "query_positions"};

// Argument and field names of a side.
struct SideNames {
  const char *scores, *first, *positions, *slots, *weights, *norms, *activation;
};
constexpr SideNames kKeyNames = {"key_scores",  "key_first", "key_positions", "key_slots",
                                 "key_weights", "key_norms", "key_activation"};
constexpr SideNames kQueryNames = {"query_scores",  "query_first", "query_positions", "query_slots",
                                   "query_weights", "query_norms", "query_activation"};

void run_host(const void* params) {
  slot_select_host(*static_cast<const SlotSelectParams*>(params));
}

void fill_widths(const SlotSelectArgs& args, SlotSelectParams& params) {
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
}

int64_t product_of(const SlotSelectParams& params) {
  int64_t slots = 1;
  for (int32_t f = 0; f < params.num_factors; ++f) slots *= params.widths[f];
  return slots;
}

void check_scores(const SideNames& names, const SlotSelectSideArgs& side, int64_t columns,
                  RowType& type) {
  const TensorRef& scores = side.scores;
  const std::optional<RowType> plain = plain_row_type(scores.dtype);
  SDM_EXPECT(plain, kType, kName, names.scores, "float32 or bfloat16", scores.describe());
  type = *plain;
  SDM_EXPECT(scores.ndim == 3 && scores.shape[2] >= 1 && scores.strides[2] == 1, kValue, kName,
             names.scores, "[B, T, columns] with stride 1 along the columns", scores.describe());
  SDM_EXPECT(scores.strides[0] >= 0 && scores.strides[1] >= 0, kValue, kName, names.scores,
             "strides that are not negative", scores.describe());
  SDM_EXPECT(side.first >= 0 && side.first <= scores.shape[2] - columns, kValue, kName, names.first,
             cat("0..", scores.shape[2] - columns, ", with H*K = ", columns, " columns behind it"),
             side.first);
}

void check_selected(const SideNames& names, const SlotSelectSideArgs& side,
                    const SlotSelectParams& params) {
  const int64_t sequences = int64_t{params.num_batches} * params.num_heads;
  const int64_t tokens = params.num_tokens, slots = product_of(params);
  expect_tensor(kName, names.slots, side.slots, Dtype::kInt32, {sequences, tokens, "k"});
  const int64_t count = side.slots.shape[2], most = std::min<int64_t>(kMaxSelected, slots);
  SDM_EXPECT(count >= 1 && count <= most, kValue, kName, names.slots,
             cat("1..", most, " slots a row"), side.slots.describe());
  SDM_EXPECT(sequences <= kMostRows / slots, kValue, kName, names.slots,
             "fewer than 2^31 slots of all sequences", cat(sequences, " times ", slots));
  expect_tensor(kName, names.weights, side.weights, Dtype::kFloat32, {sequences, tokens, count});
  const bool normalized = side.activation == SlotActivation::kL2;
  SDM_EXPECT(side.norms.has_value() == normalized, kValue, kName, names.norms,
             normalized ? "an operand, for l2_normalize" : "none without l2_normalize",
             side.norms ? side.norms->describe() : std::string("none"));
  if (side.norms) {
    expect_tensor(kName, names.norms, *side.norms, Dtype::kFloat32, {sequences, tokens});
  }
  expect_tensor(kName, names.positions, side.positions, Dtype::kUint8, {"M", params.num_factors});
  const int64_t candidates = side.positions.shape[0];
  SDM_EXPECT(candidates >= count && candidates <= kMaxCandidates, kValue, kName, names.positions,
             cat(count, "..", kMaxCandidates, " candidates"), side.positions.describe());
}

// What B, T and the sides' scores say, into the block.
void check_rows(const SlotSelectArgs& args, SlotSelectParams& params) {
  SDM_EXPECT(args.key || args.query, kValue, kName, "key_scores", "keys, queries or both",
             "neither");
  SDM_EXPECT(args.num_heads >= 1 && args.num_heads <= kMostRows, kValue, kName, "num_heads",
             cat("1..", kMostRows), args.num_heads);
  int64_t per_head = 0;
  for (int32_t f = 0; f < params.num_factors; ++f) per_head += params.widths[f];
  const int64_t columns = args.num_heads * per_head;
  const TensorRef& given = args.key ? args.key->scores : args.query->scores;
  if (args.key) check_scores(kKeyNames, *args.key, columns, params.row_type);
  if (args.query) check_scores(kQueryNames, *args.query, columns, params.row_type);
  const int64_t batches = given.shape[0], tokens = given.shape[1];
  if (args.key && args.query) {
    const TensorRef& query = args.query->scores;
    SDM_EXPECT(query.dtype == given.dtype, kType, kName, "query_scores",
               cat(dtype_name(given.dtype), ", as key_scores"), query.describe());
    SDM_EXPECT(query.shape[0] == batches && query.shape[1] == tokens, kValue, kName, "query_scores",
               cat("[", batches, ", ", tokens, ", columns], as key_scores"), query.describe());
  }
  SDM_EXPECT(batches >= 1 && tokens >= 1 && batches <= kMostRows / tokens / args.num_heads, kValue,
             kName, args.key ? "key_scores" : "query_scores", "1..2^31 - 1 rows (B*T*H)",
             given.describe());
  params.num_batches = static_cast<int32_t>(batches);
  params.num_tokens = static_cast<int32_t>(tokens);
  params.num_heads = static_cast<int32_t>(args.num_heads);
  params.by_heads = make_divider(params.num_heads);
  params.by_tokens = make_divider(params.num_tokens);
}

const void* first_score(const SlotSelectSideArgs& args) {
  return static_cast<const char*>(args.scores.data) + args.first * dtype_bytes(args.scores.dtype);
}

bool whole_pieces(const SlotSelectSideArgs& args, const SlotSelectParams& params) {
  const int64_t piece = 16 / dtype_bytes(args.scores.dtype);
  for (int32_t f = 0; f < params.num_factors; ++f) {
    if (params.widths[f] % piece != 0) return false;
  }
  const bool rows = (args.scores.shape[0] == 1 || args.scores.strides[0] % piece == 0) &&
                    (args.scores.shape[1] == 1 || args.scores.strides[1] % piece == 0);
  return rows && reinterpret_cast<uintptr_t>(first_score(args)) % 16 == 0;
}

void fill_side(const SideNames& names, const SlotSelectSideArgs& args,
               const SlotSelectParams& params, SlotSelectSide& side) {
  check_selected(names, args, params);
  side.scores = first_score(args);
  side.positions = static_cast<const uint8_t*>(args.positions.data);
  side.slots = static_cast<int32_t*>(args.slots.data);
  side.weights = static_cast<float*>(args.weights.data);
  side.norms = args.norms ? static_cast<float*>(args.norms->data) : nullptr;
  side.batch_stride = args.scores.shape[0] == 1 ? 0 : args.scores.strides[0];
  side.token_stride = args.scores.shape[1] == 1 ? 0 : args.scores.strides[1];
  side.count = static_cast<int32_t>(args.slots.shape[2]);
  side.candidates = static_cast<int32_t>(args.positions.shape[0]);
  side.activation = args.activation;
  side.scale = args.activation == SlotActivation::kNone ? 1.0f : args.scale;
}

void check_devices(const plancap::Target& target, const SideNames& names,
                   const SlotSelectSideArgs& side) {
  expect_device(kName, names.scores, side.scores, target.device);
  expect_device(kName, names.positions, side.positions, target.device);
  expect_device(kName, names.slots, side.slots, target.device);
  expect_device(kName, names.weights, side.weights, target.device);
  if (side.norms) expect_device(kName, names.norms, *side.norms, target.device);
}

// The scores' tensor as the operand; of one with gaps, the memory that it spans.
plancap::Operand scores_operand(const char* name, const SlotSelectSideArgs& side) {
  TensorRef tensor = side.scores;
  if (!tensor.contiguous()) {
    const int64_t last = (tensor.shape[0] - 1) * tensor.strides[0] +
                         (tensor.shape[1] - 1) * tensor.strides[1] + tensor.shape[2];
    tensor.ndim = 1;
    tensor.shape[0] = last;
    tensor.strides[0] = 1;
  }
  plancap::Operand operand = whole(name, tensor, Access::kRead);
  operand.offset = static_cast<uint64_t>(side.first) * dtype_bytes(tensor.dtype);
  return operand;
}

void push_operands(const SideNames& names, const SlotSelectSideArgs& side,
                   std::vector<plancap::Operand>& operands) {
  operands.push_back(scores_operand(names.scores, side));
  operands.push_back(whole(names.positions, side.positions, Access::kRead));
  operands.push_back(whole(names.slots, side.slots, Access::kWrite));
  operands.push_back(whole(names.weights, side.weights, Access::kWrite));
  if (side.norms) operands.push_back(whole(names.norms, *side.norms, Access::kWrite));
}

}  // namespace

const KernelInfo& slot_select_info() {
  static constexpr KernelInfo info = plancap::with_early(
      plancap::make_kernel_info<SlotSelectParams>(kName, kFields, run_host, check_slot_select_plan),
      kEarly);
  return info;
}

void slot_select(plancap::Sink& sink, const SlotSelectArgs& args) {
  // Check and fill.
  SlotSelectParams params{};
  fill_widths(args, params);
  check_rows(args, params);
  if (args.key) fill_side(kKeyNames, *args.key, params, params.key);
  if (args.query) fill_side(kQueryNames, *args.query, params, params.query);
  params.key_wide_loads = args.key && whole_pieces(*args.key, params) ? 1 : 0;
  params.query_wide_loads = args.query && whole_pieces(*args.query, params) ? 1 : 0;
  if (args.key) check_devices(sink.target(), kKeyNames, *args.key);
  if (args.query) check_devices(sink.target(), kQueryNames, *args.query);

  // Describe.
  plancap::Launch launch;
  launch.kernel = &slot_select_info();
  launch.params = &params;
  if (args.key) push_operands(kKeyNames, *args.key, launch.operands);
  if (args.query) push_operands(kQueryNames, *args.query, launch.operands);

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, slot_select_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
