// What the compiler makes of plan_format.h, for the test of its Python mirror.
#include <cstddef>

#include "bindings/bindings.h"
#include "plancap/format/plan_format.h"

namespace py = pybind11;

namespace sdm::bindings {
namespace {

using namespace plancap;

#define SDM_SPAN(Struct, member) \
  spans[#member] = py::make_tuple(offsetof(Struct, member), sizeof(Struct::member))

py::dict plan_header_spans() {
  py::dict spans;
  SDM_SPAN(PlanHeader, magic);
  SDM_SPAN(PlanHeader, checksum);
  SDM_SPAN(PlanHeader, version);
  SDM_SPAN(PlanHeader, oldest_reader);
  SDM_SPAN(PlanHeader, header_bytes);
  SDM_SPAN(PlanHeader, param_bytes);
  SDM_SPAN(PlanHeader, total_bytes);
  SDM_SPAN(PlanHeader, layout_hash);
  SDM_SPAN(PlanHeader, image_hash);
  SDM_SPAN(PlanHeader, device_uuid);
  SDM_SPAN(PlanHeader, kernel);
  SDM_SPAN(PlanHeader, entry);
  SDM_SPAN(PlanHeader, grid);
  SDM_SPAN(PlanHeader, block);
  SDM_SPAN(PlanHeader, cluster);
  SDM_SPAN(PlanHeader, shared_bytes);
  SDM_SPAN(PlanHeader, steps);
  SDM_SPAN(PlanHeader, flags);
  SDM_SPAN(PlanHeader, num_fields);
  SDM_SPAN(PlanHeader, num_patches);
  SDM_SPAN(PlanHeader, num_relocs);
  SDM_SPAN(PlanHeader, backend);
  SDM_SPAN(PlanHeader, capability_major);
  SDM_SPAN(PlanHeader, capability_minor);
  SDM_SPAN(PlanHeader, reserved);
  return spans;
}

py::dict field_record_spans() {
  py::dict spans;
  SDM_SPAN(FieldRecord, name);
  SDM_SPAN(FieldRecord, offset);
  SDM_SPAN(FieldRecord, size);
  SDM_SPAN(FieldRecord, type);
  SDM_SPAN(FieldRecord, flags);
  SDM_SPAN(FieldRecord, reserved);
  return spans;
}

py::dict patch_record_spans() {
  py::dict spans;
  SDM_SPAN(PatchRecord, field);
  SDM_SPAN(PatchRecord, kind);
  SDM_SPAN(PatchRecord, reserved);
  SDM_SPAN(PatchRecord, base);
  SDM_SPAN(PatchRecord, stride);
  SDM_SPAN(PatchRecord, lowest);
  SDM_SPAN(PatchRecord, highest);
  return spans;
}

py::dict reloc_record_spans() {
  py::dict spans;
  SDM_SPAN(RelocRecord, field);
  SDM_SPAN(RelocRecord, dtype);
  SDM_SPAN(RelocRecord, access);
  SDM_SPAN(RelocRecord, align_log2);
  SDM_SPAN(RelocRecord, reserved);
  SDM_SPAN(RelocRecord, operand);
  SDM_SPAN(RelocRecord, offset);
  SDM_SPAN(RelocRecord, extent);
  SDM_SPAN(RelocRecord, step_stride);
  SDM_SPAN(RelocRecord, step_bytes);
  return spans;
}

py::dict chain_header_spans() {
  py::dict spans;
  SDM_SPAN(ChainHeader, magic);
  SDM_SPAN(ChainHeader, checksum);
  SDM_SPAN(ChainHeader, version);
  SDM_SPAN(ChainHeader, oldest_reader);
  SDM_SPAN(ChainHeader, header_bytes);
  SDM_SPAN(ChainHeader, steps);
  SDM_SPAN(ChainHeader, num_plans);
  SDM_SPAN(ChainHeader, order);
  SDM_SPAN(ChainHeader, total_bytes);
  return spans;
}

py::dict chain_entry_spans() {
  py::dict spans;
  SDM_SPAN(ChainEntry, offset);
  SDM_SPAN(ChainEntry, size);
  return spans;
}

// struct name -> (size, {member: (offset, size)}).
py::dict format_layout() {
  py::dict layout;
  layout["PlanHeader"] = py::make_tuple(sizeof(PlanHeader), plan_header_spans());
  layout["FieldRecord"] = py::make_tuple(sizeof(FieldRecord), field_record_spans());
  layout["PatchRecord"] = py::make_tuple(sizeof(PatchRecord), patch_record_spans());
  layout["RelocRecord"] = py::make_tuple(sizeof(RelocRecord), reloc_record_spans());
  layout["ChainHeader"] = py::make_tuple(sizeof(ChainHeader), chain_header_spans());
  layout["ChainEntry"] = py::make_tuple(sizeof(ChainEntry), chain_entry_spans());
  return layout;
}

}  // namespace

void bind_format(py::module_& module) { module.def("format_layout", &format_layout); }

}  // namespace sdm::bindings
