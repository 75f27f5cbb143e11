// Write side of a step: walks the sorted write records, restores the bank, advances the grad rows.
#pragma once
#include <optional>

#include "kernels/step/gx_pa2/gx_pa2_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct GxPa2Args {
  TensorRef grad;     // bfloat16 or float32 [rows, hd], in place
  TensorRef bank;     // bfloat16 or float32 [rows, hd], restored in place
  TensorRef snap;     // [..., hd] bfloat16, float32 or e4m3 bytes; [..., hd/2] uint8 for int4
  TensorRef d_u;      // float32 [N*C, hd] or [N, C, hd]
  TensorRef beta;     // float32 [N*C]
  TensorRef rec;      // int32 [N, C*W, 4], sorted write records
  TensorRef out_eff;  // float32 [num_slices, N*C*W], out; one slice: any shape
  TensorRef out_g;    // the same
  std::optional<TensorRef> kpay;  // int32 [N, C*W]: the words of rec alone; checked, not read
  std::optional<TensorRef> bpre;  // int32 [N, ceil(C*W/32)+1]: the dense snapshot layout
  std::optional<int64_t> snap_step_rows;  // rows of a step in the per-entry layout
  std::optional<TensorRef> scales;        // float32, one per snapshot row, for quantized rows
  int64_t num_parallel = 0;
  int64_t chunk_size = 0;
  int64_t num_writes = 0;
  int64_t ti = 0;                // the step of this launch
  std::optional<int64_t> steps;  // steps a plan covers; none: only ti
  bool pdl = false;
};

// What the checks find out about the arguments.
struct GxPa2Sizes {
  int64_t chunks, entries, hd;
  int64_t snap_row_bytes;
  int64_t snap_step_rows;  // rows from one step's snapshots to the next one's, in either layout
  RowType bank_type, snap_type, grad_type;
};

// Throws for the first argument that is wrong.
GxPa2Sizes check_gx_pa2(const plancap::Target& target, const GxPa2Args& args);

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void gx_pa2(plancap::Sink& sink, const GxPa2Args& args);

// The host twin.
void gx_pa2_host(const GxPa2Params& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_gx_pa2_plan(const plancap::ParamView& view);

const plancap::KernelInfo& gx_pa2_info();

}  // namespace sdm
