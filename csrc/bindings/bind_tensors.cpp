#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/tensor_reader.h"
#include "plancap/base/error.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

TensorRef make_tensor(uintptr_t data, int dtype, const Device& device, const py::tuple& shape,
                      const py::tuple& strides) {
  TensorRef tensor;
  tensor.data = reinterpret_cast<void*>(data);
  tensor.dtype = static_cast<Dtype>(dtype);
  tensor.device = device;
  SDM_INTERNAL_CHECK(shape.size() <= kMaxDims && shape.size() == strides.size(), "a tensor of ",
                     shape.size(), " dimensions with ", strides.size(), " strides");
  tensor.ndim = static_cast<int>(shape.size());
  for (int i = 0; i < tensor.ndim; ++i) {
    tensor.shape[i] = shape[i].cast<int64_t>();
    tensor.strides[i] = strides[i].cast<int64_t>();
  }
  return tensor;
}

}  // namespace

std::vector<std::byte> from_python(const py::buffer& buffer) {
  const py::buffer_info info = buffer.request();
  SDM_EXPECT(info.ndim == 1 && info.itemsize == 1 && (info.size == 0 || info.strides[0] == 1),
             kType, "plan", "bytes", "a contiguous buffer of bytes",
             cat(info.ndim, " dimensions of ", info.itemsize, "-byte items"));
  const auto* data = static_cast<const std::byte*>(info.ptr);
  return {data, data + info.size};
}

void bind_tensors(py::module_& module) {
  py::class_<Device>(module, "Device")
      .def(py::init([](bool cuda, int index) {
             return Device{cuda ? DeviceKind::kCuda : DeviceKind::kHost, index};
           }),
           py::arg("cuda"), py::arg("index"))
      .def("__str__", &device_name)
      .def("__eq__", [](const Device& a, const Device& b) { return a == b; });
  py::class_<TensorRef>(module, "TensorRef")
      .def(py::init(&make_tensor), py::arg("data"), py::arg("dtype"), py::arg("device"),
           py::arg("shape"), py::arg("strides"))
      .def("__str__", &TensorRef::describe);
  py::class_<Operands>(module, "Operands")
      .def("aligned", &Operands::aligned, py::arg("bytes"))
      .def("moved", &Operands::moved, py::arg("tensors"), py::arg("memories"));
  py::class_<ArenaLayout>(module, "ArenaLayout")
      .def(py::init<const py::list&, uint64_t>(), py::arg("parts"), py::arg("bytes"));
  py::class_<TensorReader>(module, "TensorReader")
      .def(py::init<py::object, py::dict>(), py::arg("strided"), py::arg("dtypes"))
      .def("read", &TensorReader::read)
      .def("read_all", &TensorReader::read_all, py::arg("tensors"), py::arg("arenas"));
  module.def("cuda_unavailable", &plancap::cuda_unavailable);
}

}  // namespace sdm::bindings
