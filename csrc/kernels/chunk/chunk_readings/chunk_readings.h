// The readings from what the forward's step chain leaves, chunk by chunk.
#pragma once
#include "kernels/chunk/chunk_readings/chunk_readings_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

struct ChunkReadingsArgs {
  TensorRef reading;       // float32 [N, C, hd]: of the bank before the chunk
  TensorRef qk;            // float32 [N, C, C]: what lies on and below the diagonal is read
  TensorRef delta;         // float32 [N, C, hd]
  TensorRef readings;      // float32 or bfloat16 [P, T, hd] or [B, T, H, hd] with P = B*H, out
  int64_t first_step = 0;  // of the N chunks
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch.
void chunk_readings(plancap::Sink& sink, const ChunkReadingsArgs& args);

// The host twin.
void chunk_readings_host(const ChunkReadingsParams& params);

const plancap::KernelInfo& chunk_readings_info();

}  // namespace sdm
