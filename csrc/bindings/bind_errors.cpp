#include "bindings/bindings.h"
#include "plancap/base/error.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

// The Python class of an error kind. PlanError and CudaError live in sdm_runtime/errors.py, so that
// they exist without the extension; CudaOutOfMemoryError in memory_error.py, which needs torch.
py::object exception_class(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kValue:
      return py::reinterpret_borrow<py::object>(PyExc_ValueError);
    case ErrorKind::kType:
      return py::reinterpret_borrow<py::object>(PyExc_TypeError);
    case ErrorKind::kPlan:
      return py::module_::import("sdm_runtime.errors").attr("PlanError");
    case ErrorKind::kCuda:
      return py::module_::import("sdm_runtime.errors").attr("CudaError");
    case ErrorKind::kMemory:
      return py::module_::import("sdm_runtime.memory_error").attr("CudaOutOfMemoryError");
    case ErrorKind::kInternal:
      break;
  }
  return py::reinterpret_borrow<py::object>(PyExc_RuntimeError);
}

// Sets the Python exception; its attribute `issued` where the error knows that.
void raise(const Error& error) {
  const py::object kind = exception_class(error.kind());
  if (!error.issued()) return py::set_error(kind, error.what());
  const py::object exception = kind(error.what());
  exception.attr("issued") = *error.issued();
  py::set_error(kind, exception);
}

}  // namespace

void bind_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace sdm::bindings
