#include "bindings/tensor_reader.h"

#include <algorithm>

#include "plancap/base/error.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

// The attributes' names, interned once and never released.
struct Names {
  PyObject* is_nested = intern("is_nested");
  PyObject* layout = intern("layout");
  PyObject* dtype = intern("dtype");
  PyObject* is_cpu = intern("is_cpu");
  PyObject* is_cuda = intern("is_cuda");
  PyObject* shape = intern("shape");
  PyObject* get_device = intern("get_device");
  PyObject* is_neg = intern("is_neg");
  PyObject* data_ptr = intern("data_ptr");
  PyObject* stride = intern("stride");
  PyObject* storage_offset = intern("storage_offset");
  PyObject* untyped_storage = intern("untyped_storage");
  PyObject* nbytes = intern("nbytes");

  static PyObject* intern(const char* name) {
    PyObject* const text = PyUnicode_InternFromString(name);
    if (text == nullptr) throw py::error_already_set();
    return text;
  }
};

const Names& names() {
  static const Names instance;
  return instance;
}

py::object owned(PyObject* result) {
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

py::object get(py::handle object, PyObject* name) {
  return owned(PyObject_GetAttr(object.ptr(), name));
}

py::object call(py::handle object, PyObject* name) {
  return owned(PyObject_CallMethodNoArgs(object.ptr(), name));
}

int64_t number(const py::object& value) {
  const long long result = PyLong_AsLongLong(value.ptr());
  if (result == -1 && PyErr_Occurred()) throw py::error_already_set();
  return result;
}

uintptr_t address(const py::object& value) {
  void* const result = PyLong_AsVoidPtr(value.ptr());
  if (result == nullptr && PyErr_Occurred()) throw py::error_already_set();
  return reinterpret_cast<uintptr_t>(result);
}

void read_sizes(const py::object& tuple, int ndim, std::array<int64_t, kMaxDims>& sizes) {
  for (int i = 0; i < ndim; ++i) {
    sizes[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple.ptr(), i));
  }
}

constexpr size_t kUsualParts = 8;  // of an arena: room that is reserved

// Bytes from the first to the end of the last element.
uint64_t extent_bytes(const TensorRef& tensor) {
  int64_t last = 0;
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return static_cast<uint64_t>(last + 1) * dtype_bytes(tensor.dtype);
}

// A reference to a contiguous tensor of at most `bytes` bytes, without an address and a device.
TensorRef contiguous_form(const std::string& name, Dtype dtype, const std::vector<int64_t>& shape,
                          uint64_t bytes) {
  SDM_INTERNAL_CHECK(dtype_bytes(dtype) > 0, name, " has no known dtype");
  SDM_INTERNAL_CHECK(shape.size() <= kMaxDims, name, " has ", shape.size(), " dimensions");
  TensorRef form;
  form.dtype = dtype;
  form.ndim = static_cast<int>(shape.size());
  int64_t elements = 1;
  for (int i = form.ndim - 1; i >= 0; --i) {
    form.shape[i] = shape[i];
    form.strides[i] = elements;
    const bool counted = !__builtin_mul_overflow(elements, shape[i], &elements);
    SDM_INTERNAL_CHECK(counted && shape[i] >= 0 && static_cast<uint64_t>(elements) <= bytes, name,
                       " has a length of ", shape[i], " in ", bytes, " bytes");
  }
  return form;
}

}  // namespace

ArenaLayout::ArenaLayout(const py::list& parts, uint64_t bytes) : bytes_(bytes) {
  for (const py::handle given : parts) {
    const auto [name, dtype, shape, first] =
        given.cast<std::tuple<std::string, int, std::vector<int64_t>, uint64_t>>();
    Part& part = parts_.emplace_back();
    part.name = name;
    part.first = first;
    part.form = contiguous_form(name, static_cast<Dtype>(dtype), shape, bytes);
    const uint64_t size = part.form.bytes();
    SDM_INTERNAL_CHECK(size <= bytes && first <= bytes - size, name, " has ", size,
                       " bytes from byte ", first, " on, of ", bytes);
    SDM_INTERNAL_CHECK(first % dtype_bytes(part.form.dtype) == 0, name,
                       " starts inside an element");
  }
  // Of an arena without parts, Operands::moved() could name none.
  SDM_INTERNAL_CHECK(!parts_.empty(), "an arena without operands");
}

const TensorRef* Operands::find(std::string_view name) const {
  for (const auto& [known, tensor] : list_) {
    if (known == name) return &tensor;
  }
  return nullptr;
}

const TensorRef& Operands::at(std::string_view name) const {
  const TensorRef* tensor = find(name);
  SDM_INTERNAL_CHECK(tensor != nullptr, "no operand '", name, "' was given");
  return *tensor;
}

bool Operands::aligned(uint64_t bytes) const {
  return std::ranges::all_of(list_, [&](const plancap::NamedTensor& named) {
    return reinterpret_cast<uintptr_t>(named.second.data) % bytes == 0;
  });
}

std::vector<TensorRef> Operands::at_addresses(std::span<const uintptr_t> addresses) const {
  SDM_INTERNAL_CHECK(addresses.size() == alone() + arenas_.size(), addresses.size(),
                     " addresses for ", alone(), " tensors and ", arenas_.size(), " arenas");
  std::vector<TensorRef> refs;
  refs.reserve(list_.size());
  for (const auto& [name, tensor] : list_) refs.push_back(tensor);
  for (size_t i = 0; i < alone(); ++i) refs[i].data = reinterpret_cast<void*>(addresses[i]);
  for (size_t a = 0; a < arenas_.size(); ++a) {
    const size_t end = a + 1 < arenas_.size() ? arenas_[a + 1].first : refs.size();
    for (size_t i = arenas_[a].first; i < end; ++i) {
      const uintptr_t offset = reinterpret_cast<uintptr_t>(refs[i].data) - arenas_[a].begin;
      refs[i].data = reinterpret_cast<void*>(addresses[alone() + a] + offset);
    }
  }
  return refs;
}

std::optional<std::string> Operands::moved(const py::dict& tensors,
                                           const py::list& memories) const {
  SDM_INTERNAL_CHECK(tensors.size() == alone() && memories.size() == arenas_.size(), tensors.size(),
                     " tensors and ", memories.size(), " arenas for ", alone(), " and ",
                     arenas_.size());
  size_t index = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto& [known, ref] = list_[index++];
    SDM_INTERNAL_CHECK(name.cast<std::string_view>() == known, "another order of the operands");
    const uintptr_t now = address(call(tensor, names().data_ptr));
    if (now != reinterpret_cast<uintptr_t>(ref.data)) return known;
  }
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const uintptr_t now = address(call(memories[i], names().data_ptr));
    if (now != arenas_[i].begin) return list_[arenas_[i].first].first;
  }
  return {};
}

TensorReader::TensorReader(py::object strided, py::dict dtypes)
    : strided_(std::move(strided)), dtypes_(std::move(dtypes)) {}

std::optional<TensorRef> TensorReader::read(py::handle tensor) const {
  std::optional<TensorRef> ref(std::in_place);
  if (!read_into(tensor, *ref)) ref.reset();
  return ref;
}

bool TensorReader::read_into(py::handle tensor, TensorRef& ref) const {
  // What it is.
  const Names& name = names();
  const py::object nested = py::getattr(tensor, name.is_nested, py::none());
  if (!nested.is(py::bool_(false))) return false;
  if (!get(tensor, name.layout).is(strided_)) return false;
  PyObject* const code = PyDict_GetItem(dtypes_.ptr(), get(tensor, name.dtype).ptr());
  if (code == nullptr) return false;
  if (!call(tensor, name.is_neg).is(py::bool_(false))) return false;
  ref.dtype = static_cast<Dtype>(PyLong_AsLong(code));

  // Where it is.
  if (get(tensor, name.is_cuda).is(py::bool_(true))) {
    ref.device = {DeviceKind::kCuda, static_cast<int>(number(call(tensor, name.get_device)))};
  } else if (!get(tensor, name.is_cpu).is(py::bool_(true))) {
    return false;
  }
  ref.data = reinterpret_cast<void*>(address(call(tensor, name.data_ptr)));

  // How large it is.
  const py::object shape = get(tensor, name.shape), strides = call(tensor, name.stride);
  SDM_INTERNAL_CHECK(PyTuple_Check(shape.ptr()) && PyTuple_Check(strides.ptr()) &&
                         PyTuple_GET_SIZE(shape.ptr()) <= kMaxDims &&
                         PyTuple_GET_SIZE(shape.ptr()) == PyTuple_GET_SIZE(strides.ptr()),
                     "a tensor whose shape and strides are not tuples of one length");
  ref.ndim = static_cast<int>(PyTuple_GET_SIZE(shape.ptr()));
  read_sizes(shape, ref.ndim, ref.shape);
  read_sizes(strides, ref.ndim, ref.strides);
  if (PyErr_Occurred()) throw py::error_already_set();

  // What its storage holds: it may have been resized. Of an empty one nothing is read.
  const int64_t held = number(call(call(tensor, name.untyped_storage), name.nbytes));
  const int64_t first = number(call(tensor, name.storage_offset)) * dtype_bytes(ref.dtype);
  const uint64_t extent = extent_bytes(ref);
  if (extent > 0 && static_cast<uint64_t>(held) < static_cast<uint64_t>(first) + extent) {
    return false;
  }

  // A wrapper (a fake or a distributed tensor) says what it stands for, and has no memory.
  if (ref.data == nullptr && extent > 0) return false;
  return true;
}

// The memory is a tensor as any other; where it can be read, so can its parts.
bool TensorReader::read_arena(py::handle memory, const ArenaLayout& layout,
                              Operands& operands) const {
  TensorRef whole;
  if (!read_into(memory, whole)) return false;
  SDM_INTERNAL_CHECK(whole.contiguous() && whole.bytes() == layout.bytes_, "an arena of ",
                     layout.bytes_, " bytes in ", whole.describe());
  operands.arenas_.push_back({reinterpret_cast<uintptr_t>(whole.data), operands.list_.size()});
  for (const ArenaLayout::Part& part : layout.parts_) {
    auto& [text, ref] = operands.list_.emplace_back(part.name, part.form);
    ref.device = whole.device;
    ref.data = static_cast<std::byte*>(whole.data) + part.first;
  }
  return true;
}

std::optional<Operands> TensorReader::read_all(const py::dict& tensors,
                                               const py::list& arenas) const {
  std::optional<Operands> operands(std::in_place);
  operands->list_.reserve(tensors.size() + kUsualParts * arenas.size());
  for (const auto& [name, tensor] : tensors) {
    auto& [text, ref] = operands->list_.emplace_back();
    text = name.cast<std::string_view>();
    if (!read_into(tensor, ref)) return {};
  }
  for (const py::handle arena : arenas) {
    SDM_INTERNAL_CHECK(PyTuple_Check(arena.ptr()) && PyTuple_GET_SIZE(arena.ptr()) == 2,
                       "an arena that is not a memory and a layout");
    const py::handle memory = PyTuple_GET_ITEM(arena.ptr(), 0);
    const py::handle layout = PyTuple_GET_ITEM(arena.ptr(), 1);
    if (!read_arena(memory, layout.cast<const ArenaLayout&>(), *operands)) return {};
  }
  return operands;
}

}  // namespace sdm::bindings
