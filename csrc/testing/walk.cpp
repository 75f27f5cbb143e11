#include "testing/walk.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "kernels/common/launch/step_launch.h"
#include "plancap/format/param_view.h"

namespace sdm::testing {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;
using plancap::ParamView;
using plancap::Patch;
using plancap::PatchKind;

constexpr const char* kName = "testing_walk";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(WalkParams, out),   SDM_FIELD(WalkParams, value), SDM_FIELD(WalkParams, first),
    SDM_FIELD(WalkParams, count), SDM_FIELD(WalkParams, add),   SDM_FIELD(WalkParams, reserved),
};

void run_host(const void* block) {
  const auto& params = *static_cast<const WalkParams*>(block);
  if (!params.add) {
    for (int64_t i = 0; i < params.count; ++i) {
      params.out[params.first + i] = static_cast<float>(params.value);
    }
    return;
  }
  // Another run of the chain comes between the patch and the work, on one processor too.
  std::this_thread::sleep_for(std::chrono::microseconds(10));
  for (int64_t i = 0; i < params.count; ++i) {
    std::atomic_ref(params.out[params.first + i]).fetch_add(static_cast<float>(params.value));
  }
}

void check_plan(const ParamView& view) {
  const auto& params = view.get<WalkParams>();
  view.range("first", params.first, 0, INT32_MAX);
  view.range("count", params.count, 0, INT32_MAX);
  view.range("add", params.add, 0, 1);
  view.reach<float>("out", params.add ? Access::kReadWrite : Access::kWrite,
                    uint64_t(params.first) + uint64_t(params.count));
}

Patch patch(const char* field, PatchKind kind, const Line& line) {
  return {field, kind, line.base, line.stride, line.lowest, line.highest};
}

}  // namespace

const KernelInfo& walk_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<WalkParams>(kName, kFields, run_host, check_plan);
  return info;
}

void walk(plancap::Sink& sink, const WalkArgs& args) {
  // Check.
  expect_tensor(kName, "out", args.out, Dtype::kFloat32, {"elements"});
  expect_device(kName, "out", args.out, sink.target().device);

  // Fill.
  WalkParams params{};
  params.out = static_cast<float*>(args.out.data);
  params.count = static_cast<int32_t>(args.count);
  params.add = args.add;

  // Launch.
  plancap::Launch launch;
  launch.kernel = &walk_info();
  launch.params = &params;
  launch.steps = static_cast<uint32_t>(args.steps);
  launch.patches = {patch("out", PatchKind::kPointer, args.bytes),
                    patch("value", PatchKind::kInt64, args.value),
                    patch("first", PatchKind::kInt32, args.first)};
  launch.operands = {whole("out", args.out, args.add ? Access::kReadWrite : Access::kWrite)};
  launch.config.grid.x = args.empty ? 0 : 1;
  sink.launch(launch);
}

}  // namespace sdm::testing
