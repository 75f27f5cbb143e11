#include <functional>

#include "kernels/common/launch/step_launch.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/rows/plane_reduce/plane_reduce.h"
#include "kernels/rows/plane_reduce/plane_reduce_geometry.h"

namespace sdm {
namespace {

using plancap::Access;
using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "plane_reduce";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(PlaneReduceParams, planes),     SDM_NULLABLE_FIELD(PlaneReduceParams, factor),
    SDM_FIELD(PlaneReduceParams, out),        SDM_FIELD(PlaneReduceParams, count),
    SDM_FIELD(PlaneReduceParams, num_tokens), SDM_FIELD(PlaneReduceParams, num_planes),
    SDM_FIELD(PlaneReduceParams, group),      SDM_FIELD(PlaneReduceParams, negate),
    SDM_FIELD(PlaneReduceParams, width),      SDM_FIELD(PlaneReduceParams, num_parallel),
    SDM_FIELD(PlaneReduceParams, chunk_size),
};

void run_host(const void* params) {
  plane_reduce_host(*static_cast<const PlaneReduceParams*>(params));
}

bool overlap(const TensorRef& a, const TensorRef& b) {
  const auto begin = [](const TensorRef& t) { return static_cast<const char*>(t.data); };
  const std::less<const char*> before;
  return before(begin(a), begin(b) + b.bytes()) && before(begin(b), begin(a) + a.bytes());
}

void check_factor(const PlaneReduceArgs& args, int64_t count) {
  if (!args.factor) {
    SDM_EXPECT(!args.negate, kValue, kName, "negate", "false without a factor", "true");
    return;
  }
  SDM_EXPECT(args.group >= 1 && count % args.group == 0, kValue, kName, "group",
             cat("at least 1 and a divisor of the ", count, " entries"), args.group);
  SDM_EXPECT(args.group <= 256, kValue, kName, "group", "at most 256", args.group);
  expect_numel(kName, "factor", *args.factor, Dtype::kFloat32, count / args.group);
}

// Returns the entries per token.
int64_t check(const plancap::Target& target, const PlaneReduceArgs& args) {
  expect_chunk_size(kName, args.chunk_size);
  expect_tensor(kName, "planes", args.planes, Dtype::kFloat32, {"slices", "N*C*width"});
  SDM_EXPECT(args.planes.shape[0] >= 1 && args.planes.shape[0] <= num_slices(1 << 20), kValue,
             kName, "planes", cat("1..", num_slices(1 << 20), " planes"), args.planes.describe());
  const int64_t count = args.planes.shape[1];
  SDM_EXPECT(args.num_tokens >= 1 && args.num_tokens <= count, kValue, kName, "num_tokens",
             cat("1..", count, " (entries of a plane)"), args.num_tokens);
  SDM_EXPECT(args.num_parallel >= 1 && args.num_parallel <= count / args.num_tokens, kValue, kName,
             "num_parallel", cat("1..", count / args.num_tokens, " (entries / num_tokens)"),
             args.num_parallel);
  const int64_t steps = (args.num_tokens - 1) / args.chunk_size + 1;
  const int64_t tokens = steps * args.num_parallel * args.chunk_size;
  const int64_t width = count / tokens;
  SDM_EXPECT(count % tokens == 0 && width >= 1 && width <= 256, kValue, kName, "planes",
             cat("1..256 entries for each of the ", tokens, " staged tokens"),
             args.planes.describe());
  expect_numel(kName, "out", args.out, Dtype::kFloat32, count);
  SDM_EXPECT(!overlap(args.planes, args.out), kValue, kName, "out", "memory apart from planes",
             "memory that overlaps it");
  check_factor(args, count);
  expect_device(kName, "planes", args.planes, target.device);
  expect_device(kName, "out", args.out, target.device);
  if (args.factor) expect_device(kName, "factor", *args.factor, target.device);
  return width;
}

}  // namespace

const KernelInfo& plane_reduce_info() {
  static constexpr KernelInfo info = plancap::make_kernel_info<PlaneReduceParams>(
      kName, kFields, run_host, check_plane_reduce_plan);
  return info;
}

void plane_reduce(plancap::Sink& sink, const PlaneReduceArgs& args) {
  // Check.
  const int64_t width = check(sink.target(), args);

  // Fill.
  PlaneReduceParams params{};
  params.planes = static_cast<const float*>(args.planes.data);
  params.factor = args.factor ? static_cast<const float*>(args.factor->data) : nullptr;
  params.out = static_cast<float*>(args.out.data);
  params.count = args.planes.shape[1];
  params.num_tokens = args.num_tokens;
  params.num_planes = static_cast<int32_t>(args.planes.shape[0]);
  params.group = args.factor ? static_cast<int32_t>(args.group) : 1;
  params.negate = args.negate ? 1 : 0;
  params.width = static_cast<int32_t>(width);
  params.num_parallel = static_cast<int32_t>(args.num_parallel);
  params.chunk_size = static_cast<int32_t>(args.chunk_size);

  // Describe.
  plancap::Launch launch;
  launch.kernel = &plane_reduce_info();
  launch.params = &params;
  launch.operands = {whole("planes", args.planes, Access::kRead),
                     whole("out", args.out, Access::kWrite)};
  if (args.factor) launch.operands.push_back(whole("factor", *args.factor, Access::kRead));

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, plane_reduce_geometry(params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
