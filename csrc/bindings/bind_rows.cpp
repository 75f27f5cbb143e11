// Row formats by name, and rows encoded on the host.
#include "bindings/bindings.h"
#include "kernels/common/launch/row_checks.h"
#include "kernels/common/rows/row_bits.h"
#include "kernels/rows/quantize_rows/quantize_rows.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

// {name: (columns that share a byte, the largest code, or None where rows have no scales)}
py::dict row_formats() {
  py::dict formats;
  for (const RowType type : kRowTypes) {
    with_row_format(type, [&](auto format) {
      using Format = decltype(format);
      py::object largest = py::none();
      if constexpr (Format::kScaled) largest = py::float_(Format::kLargestCode);
      formats[Format::kName] = py::make_tuple(kCodesPerByte<Format>, largest);
    });
  }
  return formats;
}

}  // namespace

void bind_rows(py::module_& module) {
  module.def("row_formats", &row_formats);
  module.def("quantize_rows", [](const TensorRef& rows, const TensorRef& codes,
                                 const TensorRef& scales, const std::string& format) {
    const RowType type = expect_row_format("quantize_rows", "format", format);
    const py::gil_scoped_release release;
    quantize_rows(rows, codes, scales, type);
  });
}

}  // namespace sdm::bindings
