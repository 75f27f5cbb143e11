// References to torch tensors, read through their Python attributes: a backward makes dozens.
#pragma once
#include <optional>

#include "bindings/bindings.h"
#include "plancap/tensor_ref.h"

namespace sdm::bindings {

class TensorReader {
 public:
  // torch.strided, and the core's number of every dtype that a kernel takes.
  TensorReader(pybind11::object strided, pybind11::dict dtypes);

  // Of a torch.Tensor; none unless it is dense, of such a dtype, on the CPU or a CUDA device, with
  // its values in memory as they are read, and its storage holds its elements.
  std::optional<TensorRef> read(pybind11::handle tensor) const;

 private:
  pybind11::object strided_;
  pybind11::dict dtypes_;
};

}  // namespace sdm::bindings
