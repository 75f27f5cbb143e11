#include "testing/faulty_launchers.h"

#include "kernels/common/launch/step_launch.h"
#include "testing/odd_layout.h"

namespace sdm::testing {
namespace {

// One launch of odd_layout, with one operand described by the caller.
void launch_with(plancap::Sink& sink, const plancap::Operand& operand) {
  OddLayoutParams params{};
  params.out = static_cast<double*>(operand.tensor.data);
  plancap::Launch launch;
  launch.kernel = &odd_layout_info();
  launch.params = &params;
  launch.operands = {operand};
  sink.launch(launch);
}

plancap::Operand out_operand(const TensorRef& out) {
  return per_step("out", out, plancap::Access::kWrite, 1);
}

}  // namespace

void launches_twice(plancap::Sink& sink, const TensorRef& out) {
  launch_with(sink, out_operand(out));
  launch_with(sink, out_operand(out));
}

void launches_nothing(plancap::Sink&, const TensorRef&) {}

void throws_before_launch(plancap::Sink&, const TensorRef& out) {
  SDM_EXPECT(false, kValue, "throws_before_launch", "out", "another tensor", out.describe());
}

void names_unknown_field(plancap::Sink& sink, const TensorRef& out) {
  plancap::Operand operand = out_operand(out);
  operand.field = "no_such_field";
  launch_with(sink, operand);
}

void asks_odd_alignment(plancap::Sink& sink, const TensorRef& out) {
  plancap::Operand operand = out_operand(out);
  operand.align = 24;
  launch_with(sink, operand);
}

void starts_past_operand(plancap::Sink& sink, const TensorRef& out) {
  plancap::Operand operand = out_operand(out);
  operand.offset = out.bytes() + 8;
  launch_with(sink, operand);
}

}  // namespace sdm::testing
