// Looks into the core and changes it, for the tests alone.
#pragma once
#include <pybind11/pybind11.h>

namespace sdm::bindings {

void bind_hooks(pybind11::module_& testing);
void bind_hopper_plans(pybind11::module_& testing);

}  // namespace sdm::bindings
