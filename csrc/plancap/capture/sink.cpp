#include "plancap/capture/sink.h"

#include <algorithm>

#include "plancap/base/error.h"
#include "plancap/capture/encode.h"

namespace sdm::plancap {

void HostSink::launch(const Launch& launch) {
  SDM_EXPECT(launch.kernel->host, kValue, launch.kernel->name, "device",
             "a CUDA device (it has no host twin)", "cpu");
  if (launch.config.grid.volume() == 0) return;
  launch.kernel->host(launch.params);
}

PlanSink::PlanSink(std::string launcher, Target target, FindImage find_image)
    : launcher_(std::move(launcher)), target_(target), find_image_(find_image) {}

void PlanSink::launch(const Launch& launch) {
  if (launched_) {
    throw Error(ErrorKind::kPlan, cat("[", launcher_, "] launched twice under one plan: ",
                                      launch.kernel->name, " would be missing from it"));
  }
  launched_ = true;
  bytes_ = encode_plan(launch, target_, find_image_(launch, target_));
  for (const Operand& operand : launch.operands) {
    const auto same = [&](const NamedTensor& named) { return named.first == operand.name; };
    if (std::none_of(operands_.begin(), operands_.end(), same)) {
      operands_.emplace_back(operand.name, operand.tensor);
    }
  }
}

std::vector<std::byte> PlanSink::finish() {
  if (!launched_) {
    throw Error(ErrorKind::kPlan, cat("[", launcher_, "] launched nothing: there is no plan"));
  }
  return std::move(bytes_);
}

}  // namespace sdm::plancap
