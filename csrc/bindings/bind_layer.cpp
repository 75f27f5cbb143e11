// The layer's kernels around the operation: launch them now, record them as plans.
#include "bindings/bindings.h"

namespace py = pybind11;

namespace sdm::bindings {

void bind_layer(py::module_&) {}

}  // namespace sdm::bindings
