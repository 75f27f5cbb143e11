// Puts the test kernels into the registry, once. A program that does not ask never has them, and
// refuses their plans as unknown. Call it before other threads decode plans.
#pragma once

namespace sdm::testing {

void register_testing_kernels();

}  // namespace sdm::testing
