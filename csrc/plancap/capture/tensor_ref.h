// A tensor as the core sees it: an address, a dtype, a shape, strides and a device. No owner:
// whoever makes one keeps the tensor alive for as long as the address is used.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "plancap/format/dtypes.h"

namespace sdm {

inline constexpr int kMaxDims = 64;  // what torch itself allows is 64 as well

enum class DeviceKind : uint8_t { kHost = 1, kCuda = 2 };

struct Device {
  DeviceKind kind = DeviceKind::kHost;
  int index = 0;
  bool operator==(const Device&) const = default;
};

struct TensorRef {
  void* data = nullptr;
  Dtype dtype = Dtype::kFloat32;
  Device device;
  int ndim = 0;
  // Undefined from ndim on, and neither cleared nor copied there: a call makes a hundred references
  // and would touch a hundred kilobytes.
  std::array<int64_t, kMaxDims> shape;
  std::array<int64_t, kMaxDims> strides;  // in elements

  TensorRef() {}  // NOLINT(modernize-use-equals-default): a defaulted one may clear the arrays
  TensorRef(const TensorRef& other) { *this = other; }
  TensorRef& operator=(const TensorRef& other);

  bool defined() const { return ndim > 0 || data != nullptr; }
  int64_t numel() const;
  uint64_t bytes() const;  // of a contiguous tensor of this shape
  bool contiguous() const;
  std::string describe() const;  // "float32 [8, 64, 64]", with the strides if not contiguous
};

std::string device_name(Device device);  // "cpu" or "cuda:0"

// One expected length of a shape: a number, or the name of any length.
struct Dim {
  Dim(int64_t expected) : length(expected) {}  // NOLINT: written as {"N", 64, hd}
  Dim(const char* any) : name(any) {}          // NOLINT
  int64_t length = 0;
  const char* name = nullptr;
};

// Checks of one argument.
void expect_tensor(const char* where, const char* argument, const TensorRef& tensor, Dtype dtype,
                   std::initializer_list<Dim> shape);
void expect_contiguous(const char* where, const char* argument, const TensorRef& tensor);
void expect_device(const char* where, const char* argument, const TensorRef& tensor, Device device);
void expect_numel(const char* where, const char* argument, const TensorRef& tensor, Dtype dtype,
                  int64_t numel);

}  // namespace sdm
