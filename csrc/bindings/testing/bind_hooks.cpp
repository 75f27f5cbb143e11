#include "bindings/testing/bind_hooks.h"

#include "bindings/bindings.h"
#include "plancap/base/sha256.h"
#ifdef SDM_WITH_CUDA
#include "plancap/cuda/device_code.h"
#include "plancap/format/registry.h"
#include "plancap/run/device_table.h"
#endif

namespace py = pybind11;

namespace sdm::bindings {
namespace {

#ifdef SDM_WITH_CUDA
using Entry = std::tuple<std::string, std::string, std::string, py::bytes, bool>;

// Entries are (device function, kernel, file, SHA-256 of the file, waits).
void replace_device_code(const std::string& folder, const std::vector<Entry>& entries) {
  std::vector<plancap::cuda::CodeEntry> code;
  for (const auto& [name, kernel, file, hash, waits] : entries) {
    plancap::cuda::CodeEntry entry{name, kernel, file, {}, waits};
    const std::string bytes = hash;
    std::copy_n(bytes.begin(), std::min(bytes.size(), entry.sha256.size()), entry.sha256.begin());
    code.push_back(std::move(entry));
  }
  plancap::cuda::replace_code(folder, std::move(code));
}

// (device function, kernel, bytes of its parameters, waits) of every entry of the build's table
// that a plan can launch. The table also has kernels that are only launched at once.
py::list device_entries() {
  py::list list;
  for (const plancap::DeviceEntry& entry : plancap::device_entries()) {
    const plancap::KernelInfo* kernel = plancap::find_kernel(entry.kernel);
    if (kernel == nullptr) continue;
    list.append(py::make_tuple(entry.name, entry.kernel, kernel->param_bytes, entry.waits));
  }
  return list;
}
#endif

// What a template does, for references in place of tensors; with `steps`, of another length.
std::shared_ptr<plancap::Chain> rebind(const plancap::Chain& chain,
                                       const std::vector<plancap::NamedTensor>& tensors,
                                       std::optional<uint32_t> steps,
                                       const std::vector<plancap::LengthNumber>& numbers) {
  std::vector<plancap::OperandRef> operands;
  for (const auto& [name, tensor] : tensors) operands.push_back({name, &tensor});
  return steps ? chain.rebind(operands, *steps, numbers) : chain.rebind(operands);
}

py::bytes sha256_of(const py::buffer& buffer) {
  const plancap::Sha256 hash = plancap::sha256(from_python(buffer));
  return py::bytes(reinterpret_cast<const char*>(hash.data()), hash.size());
}

}  // namespace

void bind_hooks(py::module_& testing) {
  testing.def("sha256", &sha256_of);
  testing.def("rebind", &rebind, py::arg("chain"), py::arg("tensors"),
              py::arg("steps") = py::none(),
              py::arg("numbers") = std::vector<plancap::LengthNumber>());
#ifdef SDM_WITH_CUDA
  testing.def("replace_device_code", &replace_device_code);
  testing.def("device_entries", &device_entries);
#endif
}

}  // namespace sdm::bindings
