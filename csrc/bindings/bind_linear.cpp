// bf16_linear and bf16_linear_group: launch them now, record them as plans, and what their tactic
// tables hold.
#include "bindings/bindings.h"
#include "bindings/linear_args.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

using OptionalRefs = std::vector<std::optional<TensorRef>>;

py::list tactics() {
  py::list list;
  for (const Bf16LinearTactic& tactic : kBf16LinearTactics) {
    py::dict row;
    row["entry"] = bf16_linear_entry(tactic);
    row["rows"] = tactic.rows;
    row["tokens"] = tactic.tokens;
    row["depth"] = tactic.depth;
    row["stages"] = tactic.stages;
    row["token_stages"] = tactic.token_stages;
    row["sharers"] = tactic.sharers;
    row["shared_bytes"] = bf16_linear_shared_map(tactic).total;
    py::list splits;
    for (int32_t count = 1; count <= kBf16LinearMaxCluster; ++count) {
      if (bf16_linear_splits_valid(tactic, count)) splits.append(count);
    }
    row["splits"] = py::tuple(splits);
    list.append(row);
  }
  return list;
}

Bf16LinearGroupShape group_shape(int64_t m, const std::vector<int64_t>& rows, int64_t k) {
  constexpr const char* kWhere = "bf16_linear_group";
  SDM_EXPECT(rows.size() >= 1 && rows.size() <= kMaxBf16LinearMembers, kValue, kWhere, "rows",
             cat("1..", kMaxBf16LinearMembers, " weights' rows"), rows.size());
  Bf16LinearGroupShape shape{m, k};
  for (const int64_t n : rows) shape.num_rows[shape.num_members++] = n;
  return shape;
}

void bind_linear_group(py::module_& module) {
  module.def("bf16_linear_group", [](const TensorRef& x, const std::vector<TensorRef>& weights,
                                     const OptionalRefs& biases, const std::vector<TensorRef>& ys,
                                     LinearChoice choice, bool pdl, uintptr_t stream) {
    launch_now(bf16_linear_group, linear_group_args(x, weights, biases, ys, choice, pdl), x.device,
               stream);
  });
  module.def(
      "plan_bf16_linear_group",
      [](const TensorRef& x, const std::vector<TensorRef>& weights, const OptionalRefs& biases,
         const std::vector<TensorRef>& ys, LinearChoice choice, bool pdl) {
        const auto args = linear_group_args(x, weights, biases, ys, choice, pdl);
        return std::const_pointer_cast<plancap::BoundPlan>(
            record("bf16_linear_group", bf16_linear_group, args, x.device));
      });
  module.def("bf16_linear_group_tactics", [] {
    return std::vector<int32_t>(std::begin(kBf16LinearGroupTactics),
                                std::end(kBf16LinearGroupTactics));
  });
  module.def("bf16_linear_group_pick", [](int64_t m, const std::vector<int64_t>& rows, int64_t k,
                                          int sm_count) {
    const Bf16LinearChoice choice = bf16_linear_group_pick(group_shape(m, rows, k), sm_count);
    return std::make_pair(choice.tactic, choice.splits);
  });
}

}  // namespace

void bind_linear(py::module_& module) {
  bind_linear_group(module);
  module.def("bf16_linear", [](const TensorRef& x, const TensorRef& weight,
                               const std::optional<TensorRef>& bias, const TensorRef& y,
                               LinearChoice choice, bool pdl, uintptr_t stream) {
    launch_now(bf16_linear, linear_args(x, weight, bias, y, choice, pdl), x.device, stream);
  });
  module.def("plan_bf16_linear", [](const TensorRef& x, const TensorRef& weight,
                                    const std::optional<TensorRef>& bias, const TensorRef& y,
                                    LinearChoice choice, bool pdl) {
    return std::const_pointer_cast<plancap::BoundPlan>(
        record("bf16_linear", bf16_linear, linear_args(x, weight, bias, y, choice, pdl), x.device));
  });
  module.def("bf16_linear_tactics", &tactics);
  module.def("bf16_linear_pick", [](int64_t m, int64_t n, int64_t k, int sm_count) {
    const Bf16LinearChoice choice = bf16_linear_pick({m, n, k}, sm_count);
    return std::make_pair(choice.tactic, choice.splits);
  });
  module.def("bf16_linear_blocks",
             [](int64_t m, int64_t n, int64_t k, int32_t tactic, int32_t splits) {
               const Bf16LinearGrid grid = bf16_linear_grid({m, n, k}, {tactic, splits});
               return int64_t{grid.x} * grid.y;
             });
}

}  // namespace sdm::bindings
