// An executor with the mistake that Chain::run_host avoids: every run patches the same block. The
// test that two threads may run one chain shows with it that it would notice.
#pragma once
#include <memory>
#include <vector>

#include "plancap/run/chain.h"

namespace sdm::testing {

class SharedRun {
 public:
  explicit SharedRun(std::shared_ptr<const plancap::Chain> chain);
  void run();

 private:
  std::shared_ptr<const plancap::Chain> chain_;
  std::vector<std::vector<std::byte>> params_;
};

}  // namespace sdm::testing
