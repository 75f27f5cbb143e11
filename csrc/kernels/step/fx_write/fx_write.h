// The forward's last step: the writes of a step's tokens into the bank.
#pragma once
#include <optional>

#include "kernels/step/fx_write/fx_write_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct FxWriteArgs {
  TensorRef bank;                 // bfloat16 or float32 [rows, hd], in place
  TensorRef delta;                // float32 [N*C, hd] or [N, C, hd]
  TensorRef updates;              // int32 [N, C*W, 4], sorted write records with pd and cpe
  std::optional<TensorRef> snap;  // [N*C*W, hd] of the bank's dtype, out
  std::optional<TensorRef> bpre;  // int32 [N, ceil(C*W/32)+1]; with snap, and only then
  int64_t num_parallel = 0;
  int64_t chunk_size = 0;
  int64_t num_writes = 0;
  int64_t ti = 0;                // the step of this launch
  std::optional<int64_t> steps;  // steps a plan covers; none: only ti
  bool pdl = false;
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void fx_write(plancap::Sink& sink, const FxWriteArgs& args);

// The host twin.
void fx_write_host(const FxWriteParams& params);

// Throws kPlan for a parameter block that reaches past its operands.
void check_fx_write_plan(const plancap::ParamView& view);

const plancap::KernelInfo& fx_write_info();

}  // namespace sdm
