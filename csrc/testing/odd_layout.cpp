#include "testing/odd_layout.h"

#include <cstddef>

#include "kernels/common/launch/step_launch.h"
#include "plancap/format/param_view.h"

namespace sdm::testing {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;
using plancap::ParamView;
using plancap::PatchKind;

constexpr const char* kName = "testing_odd_layout";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(OddLayoutParams, small), SDM_FIELD(OddLayoutParams, triple),
    SDM_FIELD(OddLayoutParams, byte),  SDM_FIELD(OddLayoutParams, out),
    SDM_FIELD(OddLayoutParams, scale), SDM_FIELD(OddLayoutParams, tail),
    SDM_FIELD(OddLayoutParams, wide),  SDM_FIELD(OddLayoutParams, step),
    SDM_FIELD(OddLayoutParams, last),
};

void run_host(const void* block) {
  const auto& params = *static_cast<const OddLayoutParams*>(block);
  double* row = params.out + params.step * kOddValues;
  const double values[kOddValues] = {
      static_cast<double>(params.small),    static_cast<double>(params.triple.a),
      static_cast<double>(params.triple.b), static_cast<double>(params.triple.c),
      static_cast<double>(params.byte),     static_cast<double>(params.scale),
      static_cast<double>(params.tail),     static_cast<double>(params.wide),
      static_cast<double>(params.last)};
  for (int64_t i = 0; i < kOddValues; ++i) row[i] = values[i];
}

void check_plan(const ParamView& view) {
  const auto& params = view.get<OddLayoutParams>();
  view.range("step", params.step, 0, INT32_MAX);
  view.share<double>("out", Access::kWrite, kOddValues, params.step);
}

}  // namespace

const KernelInfo& odd_layout_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<OddLayoutParams>(kName, kFields, run_host, check_plan);
  return info;
}

void odd_layout(plancap::Sink& sink, const OddLayoutArgs& args) {
  // Check.
  expect_tensor(kName, "out", args.out, Dtype::kFloat64, {args.steps, kOddValues});
  expect_device(kName, "out", args.out, sink.target().device);

  // Fill.
  OddLayoutParams params = args.values;
  params.out = static_cast<double*>(args.out.data);
  params.step = static_cast<int32_t>(args.steps - 1);

  // Launch.
  plancap::Launch launch;
  launch.kernel = &odd_layout_info();
  launch.params = &params;
  launch.steps = static_cast<uint32_t>(args.steps);
  launch.patches = {{"step", PatchKind::kInt32, 0, 1, 0, args.steps - 1}};
  launch.operands = {per_step("out", args.out, Access::kWrite, args.steps)};
  sink.launch(launch);
}

}  // namespace sdm::testing
