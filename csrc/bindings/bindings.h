// The parts of the extension module. Only this folder sees Python; none of it sees torch.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "plancap/run/backends.h"

namespace sdm::bindings {

void bind_errors(pybind11::module_& module);
void bind_tensors(pybind11::module_& module);
void bind_devices(pybind11::module_& module);
void bind_plans(pybind11::module_& module);
void bind_chains(pybind11::module_& module);
void bind_format(pybind11::module_& module);
void bind_kernels(pybind11::module_& module);
void bind_chunks(pybind11::module_& module);
void bind_rows(pybind11::module_& module);
void bind_linear(pybind11::module_& module);
void bind_layer(pybind11::module_& module);
void bind_blas_gemm(pybind11::module_& module);
void bind_graphs(pybind11::module_& module);   // nothing in a host-only build
void bind_testing(pybind11::module_& module);  // only in a build with SDM_TESTING

using BoundPlanPtr = std::shared_ptr<const plancap::BoundPlan>;

inline void* as_stream(uintptr_t stream) { return reinterpret_cast<void*>(stream); }

// Runs a launcher's one launch now.
template <typename Launcher, typename Args>
void launch_now(Launcher launcher, const Args& args, Device device, uintptr_t stream) {
  const pybind11::gil_scoped_release release;
  const auto sink = plancap::make_stream_sink(device, as_stream(stream));
  launcher(*sink, args);
}

// Records a launcher's one launch and binds the plan to the operands it was recorded with.
template <typename Launcher, typename Args>
BoundPlanPtr record(const char* name, Launcher launcher, const Args& args, Device device) {
  plancap::PlanSink sink(name, plancap::make_target(device), plancap::find_image);
  launcher(sink, args);
  return plancap::BoundPlan::bind(plancap::Plan::decode(sink.finish()), sink.operands());
}

inline pybind11::bytes to_python(std::span<const std::byte> bytes) {
  return pybind11::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<std::byte> from_python(const pybind11::buffer& buffer);

}  // namespace sdm::bindings
