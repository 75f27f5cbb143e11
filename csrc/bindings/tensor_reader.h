// References to torch tensors, read through their Python attributes: a backward makes dozens.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/bindings.h"
#include "plancap/capture/tensor_ref.h"

namespace sdm::bindings {

// Tensors in one allocation, each contiguous, of known forms.
class ArenaLayout {
 public:
  // (name, the core's number of a dtype, shape, first byte) each.
  ArenaLayout(const pybind11::list& parts, uint64_t bytes);

 private:
  friend class TensorReader;

  struct Part {
    std::string name;
    uint64_t first;
    TensorRef form;  // without an address and a device
  };
  std::vector<Part> parts_;
  uint64_t bytes_;
};

// References by name, for kernels and chains that take many.
class Operands {
 public:
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Throws kInternal for a name that is not there: names are the Python side's, not a caller's.
  const TensorRef& at(std::string_view name) const;
  std::span<const plancap::NamedTensor> list() const { return list_; }

  // Whether each address is a multiple of so many bytes.
  bool aligned(uint64_t bytes) const;

  // The same tensors elsewhere: their addresses in order, then those of the arenas' memories.
  std::vector<TensorRef> at_addresses(std::span<const uintptr_t> addresses) const;

  // The name of the first tensor whose memory is elsewhere by now; none when all are in place.
  // Tensors and the arenas' memories: those that the references were read from, as they were given.
  std::optional<std::string> moved(const pybind11::dict& tensors,
                                   const pybind11::list& memories) const;

 private:
  friend class TensorReader;

  const TensorRef* find(std::string_view name) const;
  // Tensors in the list that are no parts of an arena: they come first.
  size_t alone() const { return arenas_.empty() ? list_.size() : arenas_.front().first; }

  std::vector<plancap::NamedTensor> list_;  // tensors, then the parts of each arena

  struct ArenaMemory {
    uintptr_t begin;
    size_t first;  // of its parts in the list
  };
  std::vector<ArenaMemory> arenas_;
};

class TensorReader {
 public:
  // torch.strided, and the core's number of every dtype that a kernel takes.
  TensorReader(pybind11::object strided, pybind11::dict dtypes);

  // None unless it is a torch.Tensor, dense, of such a dtype, on the CPU or a CUDA device, with its
  // values in memory as they are read, and its storage holds its elements.
  std::optional<TensorRef> read(pybind11::handle tensor) const;

  // Of tensors by name and of arenas (a memory and its layout each); none unless each tensor and
  // each memory can be read.
  std::optional<Operands> read_all(const pybind11::dict& tensors,
                                   const pybind11::list& arenas) const;

 private:
  bool read_into(pybind11::handle tensor, TensorRef& ref) const;
  bool read_arena(pybind11::handle memory, const ArenaLayout& layout, Operands& operands) const;

  pybind11::object strided_;
  pybind11::dict dtypes_;
};

}  // namespace sdm::bindings
