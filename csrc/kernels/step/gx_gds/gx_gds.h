// Read side of a step: the reads' dots with the restored rows, and their gradient into the rows.
#pragma once
#include <optional>

#include "kernels/step/gx_gds/gx_gds_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct GxGdsArgs {
  TensorRef grad;  // bfloat16 or float32 [rows, hd], in place
  TensorRef bank;  // bfloat16 or float32 [rows, hd], already restored by gx_pa2
  TensorRef gy;    // float32 [N*C, hd] or [N, C, hd]
  TensorRef qrec;  // int32 [N, C*R, 4], sorted read records
  TensorRef dq;    // float32 [num_slices, N*C*R], out; one slice: any shape
  int64_t num_parallel = 0;
  int64_t chunk_size = 0;
  int64_t num_reads = 0;
  int64_t ti = 0;                // the step of this launch
  std::optional<int64_t> steps;  // steps a plan covers; none: only ti
  bool pdl = false;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void gx_gds(plancap::Sink& sink, const GxGdsArgs& args);

// The host twin.
void gx_gds_host(const GxGdsParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_gx_gds_plan(const plancap::ParamView& view);

const plancap::KernelInfo& gx_gds_info();

}  // namespace sdm
