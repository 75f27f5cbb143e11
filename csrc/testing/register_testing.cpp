#include "testing/register_testing.h"

#include "plancap/format/registry.h"
#include "testing/odd_layout.h"
#include "testing/walk.h"

namespace sdm::testing {

void register_testing_kernels() {
  if (plancap::find_kernel(odd_layout_info().name)) return;
  plancap::register_kernel(odd_layout_info());
  plancap::register_kernel(walk_info());
}

}  // namespace sdm::testing
