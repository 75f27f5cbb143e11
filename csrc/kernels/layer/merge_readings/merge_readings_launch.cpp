#include <cmath>

#include "kernels/common/launch/step_launch.h"
#include "kernels/layer/merge_readings/merge_readings.h"
#include "kernels/layer/merge_readings/merge_readings_geometry.h"
#include "kernels/layer/token_operands.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "merge_readings";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(MergeReadingsParams, readings),
    SDM_NULLABLE_FIELD(MergeReadingsParams, norm_weight),
    SDM_NULLABLE_FIELD(MergeReadingsParams, norm_bias),
    SDM_NULLABLE_FIELD(MergeReadingsParams, gate),
    SDM_FIELD(MergeReadingsParams, merged),
    SDM_FIELD(MergeReadingsParams, readings_batch_stride),
    SDM_FIELD(MergeReadingsParams, readings_token_stride),
    SDM_FIELD(MergeReadingsParams, readings_head_stride),
    SDM_FIELD(MergeReadingsParams, gate_batch_stride),
    SDM_FIELD(MergeReadingsParams, gate_token_stride),
    SDM_FIELD(MergeReadingsParams, num_batches),
    SDM_FIELD(MergeReadingsParams, num_tokens),
    SDM_FIELD(MergeReadingsParams, num_heads),
    SDM_FIELD(MergeReadingsParams, hd),
    SDM_FIELD(MergeReadingsParams, readings_type),
    SDM_FIELD(MergeReadingsParams, norm_type),
    SDM_FIELD(MergeReadingsParams, gate_type),
    SDM_FIELD(MergeReadingsParams, merged_type),
    SDM_FIELD(MergeReadingsParams, eps),
};

// Loaded before the wait (merge_readings.cuh).
constexpr const char* kEarly[] = {"norm_weight", "norm_bias"};

void run_host(const void* params) {
  merge_readings_host(*static_cast<const MergeReadingsParams*>(params));
}

RowType expect_readings(const TensorRef& readings) {
  const char* expected = "float32 or bfloat16 [B, T, H, hd]";
  const std::optional<RowType> type = plain_row_type(readings.dtype);
  SDM_EXPECT(type, kType, kName, "readings", expected, readings.describe());
  SDM_EXPECT(readings.ndim == 4, kValue, kName, "readings", expected, readings.describe());
  expect_call_sizes(kName, "readings", readings.shape[0], readings.shape[1], readings.shape[2]);
  SDM_EXPECT(readings.shape[0] * readings.shape[1] <= kMostTokens / readings.shape[2], kValue,
             kName, "readings", "B * T * H below 2^31", readings.describe());
  expect_head_dim(kName, readings.shape[3]);
  for (int i = 0; i < 3; ++i) {
    SDM_EXPECT(readings.shape[i] < 2 || readings.strides[i] >= 0, kValue, kName, "readings",
               "strides of 0 or more", readings.describe());
  }
  SDM_EXPECT(readings.shape[3] == 1 || readings.numel() == 0 || readings.strides[3] == 1, kValue,
             kName, "readings", "a head's columns side by side", readings.describe());
  return *type;
}

RowType expect_norm(const MergeReadingsArgs& args, int64_t hd) {
  const RowType type = expect_head_values(kName, "norm_weight", *args.norm_weight, hd);
  SDM_EXPECT(args.norm_bias, kValue, kName, "norm_bias", "one beside norm_weight", "none");
  expect_tensor(kName, "norm_bias", *args.norm_bias, args.norm_weight->dtype, {hd});
  const auto eps = static_cast<float>(args.eps);
  SDM_EXPECT(std::isfinite(eps) && eps > 0.0f, kValue, kName, "eps", "a positive number of float32",
             args.eps);
  return type;
}

MergeReadingsParams check_and_fill(const plancap::Target& target, const MergeReadingsArgs& args) {
  // Check.
  MergeReadingsParams params{};
  const TensorRef& readings = args.readings;
  params.readings_type = expect_readings(readings);
  const int64_t batches = readings.shape[0], tokens = readings.shape[1];
  const int64_t heads = readings.shape[2], hd = readings.shape[3];
  params.merged_type =
      expect_token_values(kName, "merged", args.merged, batches, tokens, heads * hd);
  expect_contiguous(kName, "merged", args.merged);
  // What is not there has a type all the same.
  params.norm_type = args.norm_weight ? expect_norm(args, hd) : params.merged_type;
  SDM_EXPECT(args.norm_weight || !args.norm_bias, kValue, kName, "norm_bias",
             "none without norm_weight", args.norm_bias->describe());
  params.gate_type =
      args.gate ? expect_token_values(kName, "gate", *args.gate, batches, tokens, heads * hd)
                : params.merged_type;
  expect_device(kName, "readings", readings, target.device);
  expect_device(kName, "merged", args.merged, target.device);
  if (args.norm_weight) expect_device(kName, "norm_weight", *args.norm_weight, target.device);
  if (args.norm_bias) expect_device(kName, "norm_bias", *args.norm_bias, target.device);
  if (args.gate) expect_device(kName, "gate", *args.gate, target.device);

  // Fill.
  params.readings = readings.data;
  params.merged = args.merged.data;
  const TokenStrides strides = token_strides(readings);
  params.readings_batch_stride = strides.batch;
  params.readings_token_stride = strides.token;
  params.readings_head_stride = heads > 1 ? readings.strides[2] : 0;
  if (args.norm_weight) {
    params.norm_weight = args.norm_weight->data;
    params.norm_bias = args.norm_bias->data;
    params.eps = static_cast<float>(args.eps);
  }
  if (args.gate) {
    const TokenStrides of_gate = token_strides(*args.gate);
    params.gate = args.gate->data;
    params.gate_batch_stride = of_gate.batch;
    params.gate_token_stride = of_gate.token;
  }
  params.num_batches = static_cast<int32_t>(batches);
  params.num_tokens = static_cast<int32_t>(tokens);
  params.num_heads = static_cast<int32_t>(heads);
  params.hd = static_cast<int32_t>(hd);
  return params;
}

std::vector<plancap::Operand> operands_of(const MergeReadingsParams& params,
                                          const MergeReadingsArgs& args) {
  const uint64_t reached = strided_span({{params.num_batches, params.readings_batch_stride},
                                         {params.num_tokens, params.readings_token_stride},
                                         {params.num_heads, params.readings_head_stride}},
                                        params.hd);
  std::vector<plancap::Operand> operands = {
      spanned("readings", "readings", args.readings, Access::kRead, reached),
      whole("merged", args.merged, Access::kWrite)};
  if (args.norm_weight) {
    operands.push_back(whole("norm_weight", *args.norm_weight, Access::kRead));
    operands.push_back(whole("norm_bias", *args.norm_bias, Access::kRead));
  }
  if (args.gate) {
    const uint64_t of_gate = strided_span({{params.num_batches, params.gate_batch_stride},
                                           {params.num_tokens, params.gate_token_stride}},
                                          int64_t{params.num_heads} * params.hd);
    operands.push_back(spanned("gate", "gate", *args.gate, Access::kRead, of_gate));
  }
  return operands;
}

}  // namespace

const KernelInfo& merge_readings_info() {
  static constexpr KernelInfo info =
      plancap::with_early(plancap::make_kernel_info<MergeReadingsParams>(kName, kFields, run_host,
                                                                         check_merge_readings_plan),
                          kEarly);
  return info;
}

void merge_readings(plancap::Sink& sink, const MergeReadingsArgs& args) {
  // Check and fill.
  const MergeReadingsParams params = check_and_fill(sink.target(), args);

  // Describe.
  plancap::Launch launch;
  launch.kernel = &merge_readings_info();
  launch.params = &params;
  launch.operands = operands_of(params, args);

  // Choose.
  if (params.num_batches == 0 || params.num_tokens == 0) launch.config.grid.x = 0;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, merge_readings_geometry(sink.target(), params), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
