#include "plancap/capture/tensor_ref.h"

#include <algorithm>

#include "plancap/base/error.h"

namespace sdm {
namespace {

std::string shape_text(const int64_t* shape, int ndim) {
  std::string text = "[";
  for (int i = 0; i < ndim; ++i) {
    text += i ? ", " : "";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

bool fits(const TensorRef& tensor, std::initializer_list<Dim> shape) {
  if (tensor.ndim != static_cast<int>(shape.size())) return false;
  int i = 0;
  for (const Dim& dim : shape) {
    if (!dim.name && tensor.shape[i] != dim.length) return false;
    ++i;
  }
  return true;
}

std::string expected_text(Dtype dtype, std::initializer_list<Dim> shape) {
  std::string text = cat(dtype_name(dtype), " [");
  const char* separator = "";
  for (const Dim& dim : shape) {
    text += separator;
    text += dim.name ? std::string(dim.name) : std::to_string(dim.length);
    separator = ", ";
  }
  return text + "]";
}

}  // namespace

TensorRef& TensorRef::operator=(const TensorRef& other) {
  data = other.data;
  dtype = other.dtype;
  device = other.device;
  ndim = other.ndim;
  std::copy_n(other.shape.begin(), ndim, shape.begin());
  std::copy_n(other.strides.begin(), ndim, strides.begin());
  return *this;
}

int64_t TensorRef::numel() const {
  int64_t count = 1;
  for (int i = 0; i < ndim; ++i) count *= shape[i];
  return count;
}

uint64_t TensorRef::bytes() const { return static_cast<uint64_t>(numel()) * dtype_bytes(dtype); }

bool TensorRef::contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::string TensorRef::describe() const {
  std::string text = cat(dtype_name(dtype), " ", shape_text(shape.data(), ndim));
  if (!contiguous()) text += cat(" with strides ", shape_text(strides.data(), ndim));
  return text;
}

std::string device_name(Device device) {
  return device.kind == DeviceKind::kHost ? "cpu" : cat("cuda:", device.index);
}

void expect_tensor(const char* where, const char* argument, const TensorRef& tensor, Dtype dtype,
                   std::initializer_list<Dim> shape) {
  SDM_EXPECT(tensor.dtype == dtype, kType, where, argument, expected_text(dtype, shape),
             tensor.describe());
  SDM_EXPECT(fits(tensor, shape), kValue, where, argument, expected_text(dtype, shape),
             tensor.describe());
  expect_contiguous(where, argument, tensor);
}

void expect_contiguous(const char* where, const char* argument, const TensorRef& tensor) {
  SDM_EXPECT(tensor.contiguous(), kValue, where, argument, "a contiguous tensor",
             tensor.describe());
}

void expect_device(const char* where, const char* argument, const TensorRef& tensor,
                   Device device) {
  SDM_EXPECT(tensor.device == device, kValue, where, argument,
             cat("a tensor on ", device_name(device)), device_name(tensor.device));
}

void expect_numel(const char* where, const char* argument, const TensorRef& tensor, Dtype dtype,
                  int64_t numel) {
  const auto expected = [&] { return cat(dtype_name(dtype), " with ", numel, " elements"); };
  SDM_EXPECT(tensor.dtype == dtype, kType, where, argument, expected(), tensor.describe());
  SDM_EXPECT(tensor.numel() == numel, kValue, where, argument, expected(), tensor.describe());
  expect_contiguous(where, argument, tensor);
}

}  // namespace sdm
