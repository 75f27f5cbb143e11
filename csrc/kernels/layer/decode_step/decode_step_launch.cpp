#include <algorithm>
#include <functional>

#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/step_launch.h"
#include "kernels/layer/decode_step/decode_step.h"
#include "kernels/layer/decode_step/decode_step_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "decode_step";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(DecodeStepParams, bank),           SDM_FIELD(DecodeStepParams, k_idx),
    SDM_FIELD(DecodeStepParams, k_val),          SDM_FIELD(DecodeStepParams, v),
    SDM_FIELD(DecodeStepParams, beta),           SDM_FIELD(DecodeStepParams, g),
    SDM_FIELD(DecodeStepParams, q_idx),          SDM_FIELD(DecodeStepParams, q_val),
    SDM_FIELD(DecodeStepParams, readings),       SDM_FIELD(DecodeStepParams, v_batch),
    SDM_FIELD(DecodeStepParams, v_token),        SDM_FIELD(DecodeStepParams, v_head),
    SDM_FIELD(DecodeStepParams, readings_batch), SDM_FIELD(DecodeStepParams, readings_token),
    SDM_FIELD(DecodeStepParams, readings_head),  SDM_FIELD(DecodeStepParams, num_parallel),
    SDM_FIELD(DecodeStepParams, num_heads),      SDM_FIELD(DecodeStepParams, num_slots),
    SDM_FIELD(DecodeStepParams, num_tokens),     SDM_FIELD(DecodeStepParams, num_writes),
    SDM_FIELD(DecodeStepParams, num_reads),      SDM_FIELD(DecodeStepParams, num_gates),
    SDM_FIELD(DecodeStepParams, key_weighted),   SDM_FIELD(DecodeStepParams, hd),
    SDM_FIELD(DecodeStepParams, bank_type),      SDM_FIELD(DecodeStepParams, v_type),
    SDM_FIELD(DecodeStepParams, reserved),
};

void run_host(const void* params) {
  decode_step_host(*static_cast<const DecodeStepParams*>(params));
}

// What it is that every operand has in common: its sizes.
struct Sizes {
  int64_t parallel, heads, tokens, writes, reads, gates, hd;
};

// [B, T, H, hd], columns side by side.
void expect_head_rows(const char* argument, const TensorRef& tensor, int64_t tokens, int64_t hd) {
  const auto expected = [&] {
    return cat("[B, ", tokens, ", H, ", hd, "] with stride 1 in the last dimension");
  };
  const bool fits = tensor.ndim == 4 && tensor.shape[1] == tokens && tensor.shape[3] == hd &&
                    (hd == 1 || tensor.strides[3] == 1);
  SDM_EXPECT(fits, kValue, kName, argument, expected(), tensor.describe());
}

// Rows that are written do not meet: from dimension to dimension, the shortest stride first, each
// step leaves what is before it behind.
void expect_rows_apart(const char* argument, const TensorRef& tensor) {
  std::array<int, 3> dims{0, 1, 2};
  std::ranges::sort(dims, {}, [&](int d) { return tensor.strides[d]; });
  int64_t behind = tensor.shape[3];
  for (const int d : dims) {
    if (tensor.shape[d] == 1) continue;
    SDM_EXPECT(tensor.strides[d] >= behind, kValue, kName, argument, "rows that do not overlap",
               tensor.describe());
    behind += (tensor.shape[d] - 1) * tensor.strides[d];
  }
}

// The memory of a strided operand, from its first element to its last: a plan grants it whole.
TensorRef memory_of(const TensorRef& tensor) {
  TensorRef memory = tensor;
  memory.ndim = 1;
  memory.shape[0] = 1;
  memory.strides[0] = 1;
  for (int d = 0; d < tensor.ndim; ++d) {
    memory.shape[0] += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  return memory;
}

Sizes check_sizes(const DecodeStepArgs& args) {
  expect_bank_rows(kName, "bank", args.bank);
  const int64_t rows = args.bank.shape[0], hd = args.bank.shape[1];
  expect_tensor(kName, "k_idx", args.k_idx, Dtype::kInt32, {"P", "T", "W"});
  const int64_t p = args.k_idx.shape[0], t = args.k_idx.shape[1], w = args.k_idx.shape[2];
  SDM_EXPECT(p >= 1, kValue, kName, "k_idx", "at least one sequence", args.k_idx.describe());
  SDM_EXPECT(t >= 1 && t <= kDecodeMostTokens, kValue, kName, "k_idx",
             cat("1..", kDecodeMostTokens, " tokens"), args.k_idx.describe());
  expect_entries(kName, "k_idx", w);
  SDM_EXPECT(
      args.slots >= 1 && args.slots <= rows && rows % args.slots == 0 && rows / args.slots == p,
      kValue, kName, "slots", cat("the ", rows, " rows of the bank over ", p, " sequences"),
      args.slots);
  expect_tensor(kName, "k_val", args.k_val, Dtype::kFloat32, {p, t, w});
  expect_tensor(kName, "q_idx", args.q_idx, Dtype::kInt32, {p, t, "R"});
  const int64_t r = args.q_idx.shape[2];
  expect_entries(kName, "q_idx", r);
  expect_tensor(kName, "q_val", args.q_val, Dtype::kFloat32, {p, t, r});
  expect_numel(kName, "beta", args.beta, Dtype::kFloat32, p * t);
  const int64_t gates = args.g.numel() == p * t ? 1 : w;
  SDM_EXPECT(!args.key_weighted || gates == 1, kValue, kName, "g",
             cat("float32 with ", p * t, " elements (gates times k_val are one a token)"),
             args.g.describe());
  expect_numel(kName, "g", args.g, Dtype::kFloat32, p * t * gates);
  expect_head_rows("v", args.v, t, hd);
  const int64_t b = args.v.shape[0], h = args.v.shape[2];
  SDM_EXPECT(b >= 1 && h >= 1 && b <= p && h == p / b && p % b == 0, kValue, kName, "v",
             cat("[B, T, H, hd] with B * H = ", p), args.v.describe());
  SDM_EXPECT(args.readings.dtype == args.bank.dtype, kType, kName, "readings", "the bank's dtype",
             args.readings.describe());
  expect_head_rows("readings", args.readings, t, hd);
  SDM_EXPECT(args.readings.shape[0] == b && args.readings.shape[2] == h, kValue, kName, "readings",
             cat("[", b, ", ", t, ", ", h, ", ", hd, "]"), args.readings.describe());
  expect_rows_apart("readings", args.readings);
  return {p, h, t, w, r, gates, hd};
}

std::vector<plancap::Operand> operands_of(const DecodeStepArgs& args) {
  return {whole("bank", args.bank, Access::kReadWrite),
          whole("k_idx", args.k_idx, Access::kRead),
          whole("k_val", args.k_val, Access::kRead),
          whole("v", memory_of(args.v), Access::kRead),
          whole("beta", args.beta, Access::kRead),
          whole("g", args.g, Access::kRead),
          whole("q_idx", args.q_idx, Access::kRead),
          whole("q_val", args.q_val, Access::kRead),
          whole("readings", memory_of(args.readings), Access::kWrite)};
}

// What is written shares bytes with nothing else.
void check_memory(const plancap::Target& target, const std::vector<plancap::Operand>& operands) {
  const std::less<const char*> before;
  const auto begin = [](const plancap::Operand& o) {
    return static_cast<const char*>(o.tensor.data);
  };
  const auto meet = [&](const plancap::Operand& a, const plancap::Operand& b) {
    return before(begin(a), begin(b) + b.tensor.bytes()) &&
           before(begin(b), begin(a) + a.tensor.bytes());
  };
  for (const plancap::Operand& operand : operands) {
    expect_device(kName, operand.name, operand.tensor, target.device);
    if (operand.access == Access::kRead) continue;
    for (const plancap::Operand& other : operands) {
      SDM_EXPECT(&operand == &other || !meet(operand, other), kValue, kName, other.name,
                 cat("memory apart from ", operand.name), "memory that overlaps it");
    }
  }
}

DecodeStepParams fill(const DecodeStepArgs& args, const Sizes& sizes) {
  DecodeStepParams params{};
  params.bank = args.bank.data;
  params.k_idx = static_cast<const int32_t*>(args.k_idx.data);
  params.k_val = static_cast<const float*>(args.k_val.data);
  params.v = args.v.data;
  params.beta = static_cast<const float*>(args.beta.data);
  params.g = static_cast<const float*>(args.g.data);
  params.q_idx = static_cast<const int32_t*>(args.q_idx.data);
  params.q_val = static_cast<const float*>(args.q_val.data);
  params.readings = args.readings.data;
  params.v_batch = args.v.strides[0];
  params.v_token = args.v.strides[1];
  params.v_head = args.v.strides[2];
  params.readings_batch = args.readings.strides[0];
  params.readings_token = args.readings.strides[1];
  params.readings_head = args.readings.strides[2];
  params.num_parallel = static_cast<int32_t>(sizes.parallel);
  params.num_heads = static_cast<int32_t>(sizes.heads);
  params.num_slots = static_cast<int32_t>(args.slots);
  params.num_tokens = static_cast<int32_t>(sizes.tokens);
  params.num_writes = static_cast<int32_t>(sizes.writes);
  params.num_reads = static_cast<int32_t>(sizes.reads);
  params.num_gates = static_cast<int32_t>(sizes.gates);
  params.key_weighted = args.key_weighted ? 1 : 0;
  params.hd = static_cast<int32_t>(sizes.hd);
  return params;
}

RowType expect_plain(const char* argument, const TensorRef& tensor) {
  const bool legal = tensor.dtype == Dtype::kFloat32 || tensor.dtype == Dtype::kBFloat16;
  SDM_EXPECT(legal, kType, kName, argument, "float32 or bfloat16", tensor.describe());
  return tensor.dtype == Dtype::kFloat32 ? RowType::kFloat32 : RowType::kBFloat16;
}

}  // namespace

const KernelInfo& decode_step_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<DecodeStepParams>(kName, kFields, run_host, check_decode_step_plan);
  return info;
}

void decode_step(plancap::Sink& sink, const DecodeStepArgs& args) {
  // Check.
  const RowType v_type = expect_plain("v", args.v);
  const Sizes sizes = check_sizes(args);

  // Describe.
  plancap::Launch launch;
  launch.kernel = &decode_step_info();
  launch.operands = operands_of(args);
  check_memory(sink.target(), launch.operands);

  // Fill.
  DecodeStepParams params = fill(args, sizes);
  params.bank_type = expect_plain("bank", args.bank);
  params.v_type = v_type;
  launch.params = &params;

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, decode_step_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
