#include "bindings/bindings.h"

#ifdef SDM_WITH_CUDA
#include "plancap/cuda/chain_graph.h"
#include "plancap/cuda/check.h"
#include "plancap/cuda/instruments.h"
#include "plancap/cuda/private_stream.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

using plancap::Chain;
using plancap::cuda::ChainGraph;
using plancap::cuda::LibraryCapture;
using plancap::cuda::PrivateStream;

LibraryCapture library_capture(uintptr_t stream, uintptr_t handle, uintptr_t done) {
  return {static_cast<CUstream>(as_stream(stream)), reinterpret_cast<void*>(handle),
          reinterpret_cast<CUevent>(done)};
}

// Sets this thread's capture interaction mode, and returns the one before.
int exchange_capture_mode(int mode) {
  auto exchanged = static_cast<CUstreamCaptureMode>(mode);
  plancap::cuda::check(plancap::cuda::driver().exchange_capture_mode(&exchanged),
                       "cuThreadExchangeStreamCaptureMode");
  return exchanged;
}

}  // namespace

void bind_graphs(py::module_& module) {
  py::class_<ChainGraph>(module, "ChainGraph")
      .def(py::init([](const std::shared_ptr<Chain>& chain, uintptr_t stream, uintptr_t handle,
                       uintptr_t done) {
             const py::gil_scoped_release release;
             return std::make_unique<ChainGraph>(chain, library_capture(stream, handle, done));
           }),
           py::arg("chain"), py::arg("capture_stream") = 0, py::arg("blas_handle") = 0,
           py::arg("done") = 0)
      .def("replay",
           [](const ChainGraph& graph, uintptr_t stream) {
             const py::gil_scoped_release release;
             graph.replay(static_cast<CUstream>(as_stream(stream)));
           })
      .def(
          "rebind",
          [](ChainGraph& graph, const std::shared_ptr<Chain>& chain, uintptr_t stream,
             uintptr_t handle, uintptr_t done) {
            const py::gil_scoped_release release;
            graph.rebind(chain, library_capture(stream, handle, done));
          },
          py::arg("chain"), py::arg("capture_stream") = 0, py::arg("blas_handle") = 0,
          py::arg("done") = 0)
      // Without the GIL: another thread may be replaying.
      .def(
          "handle",
          [](const ChainGraph& graph) { return reinterpret_cast<uintptr_t>(graph.handle()); },
          py::call_guard<py::gil_scoped_release>())
      .def("nodes", &ChainGraph::nodes, py::call_guard<py::gil_scoped_release>())
      .def("programmatic_edges", &ChainGraph::programmatic_edges,
           py::call_guard<py::gil_scoped_release>());
  py::class_<PrivateStream>(module, "PrivateStream")
      .def(py::init([](int device) {
             return std::make_unique<PrivateStream>(plancap::cuda::device_info(device));
           }),
           py::arg("device"))
      .def("handle",
           [](const PrivateStream& stream) { return reinterpret_cast<uintptr_t>(stream.get()); });
  module.def("exchange_capture_mode", &exchange_capture_mode);
  module.def("enable_ranges", &plancap::cuda::enable_ranges);
  module.def("enable_counter", &plancap::cuda::enable_counter);
  module.def("counted_launches", &plancap::cuda::counted_launches);
}

}  // namespace sdm::bindings

#else

namespace sdm::bindings {

void bind_graphs(pybind11::module_&) {}

}  // namespace sdm::bindings

#endif
