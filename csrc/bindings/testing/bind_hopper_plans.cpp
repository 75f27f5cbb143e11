// Plans of the kernels that only Hopper has, recorded for a GPU that need not be there: what a
// launcher checks and chooses, and what its plan check refuses, can be tested anywhere.
#include "bindings/bindings.h"
#include "bindings/linear_args.h"
#include "bindings/testing/bind_hooks.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

plancap::Target hopper(int sm_count) {
  plancap::Target target;
  target.backend = plancap::Backend::kCuda;
  target.device = {DeviceKind::kCuda, 0};
  target.sm_count = sm_count;
  target.capability_major = 9;
  target.shared_bytes_optin = 227 * 1024;
  target.supports_pdl = true;
  return target;
}

// The plan's bytes, as if of a device image with a hash of zeros.
template <typename Launcher, typename Args>
py::bytes hopper_plan(const char* name, Launcher launcher, const Args& args, int sm_count) {
  const auto no_image = [](const plancap::Launch&, const plancap::Target&) {
    return plancap::ImageHash{};
  };
  plancap::PlanSink sink(name, hopper(sm_count), no_image);
  launcher(sink, args);
  return to_python(sink.finish());
}

}  // namespace

void bind_hopper_plans(py::module_& testing) {
  testing.def("hopper_plan_bf16_linear",
              [](const TensorRef& x, const TensorRef& weight, const std::optional<TensorRef>& bias,
                 const TensorRef& y, LinearChoice choice, bool pdl, int sm_count) {
                return hopper_plan("bf16_linear", bf16_linear,
                                   linear_args(x, weight, bias, y, choice, pdl), sm_count);
              });
  testing.def("hopper_plan_bf16_linear_group",
              [](const TensorRef& x, const std::vector<TensorRef>& weights,
                 const std::vector<std::optional<TensorRef>>& biases,
                 const std::vector<TensorRef>& ys, LinearChoice choice, bool pdl, int sm_count) {
                return hopper_plan("bf16_linear_group", bf16_linear_group,
                                   linear_group_args(x, weights, biases, ys, choice, pdl),
                                   sm_count);
              });
  // The member of each of the first row tiles, as a block finds it.
  testing.def("bf16_linear_group_members", [](const std::array<int32_t, 8>& first_tile, int tiles) {
    int32_t first[kMaxBf16LinearMembers];
    std::copy(first_tile.begin(), first_tile.end(), first);
    std::vector<int32_t> members;
    for (int tile = 0; tile < tiles; ++tile) {
      members.push_back(bf16_linear_group_member(first, static_cast<uint32_t>(tile)));
    }
    return members;
  });
}

}  // namespace sdm::bindings
