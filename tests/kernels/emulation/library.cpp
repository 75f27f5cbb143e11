// The emulation as a C library: device functions, host twins and geometries by name.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>

#include "emulated_kernels.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients.h"
#include "kernels/chunk/chunk_gradients/chunk_gradients_geometry.h"
#include "kernels/chunk/chunk_inverse/chunk_inverse.h"
#include "kernels/chunk/chunk_inverse/chunk_inverse_geometry.h"
#include "kernels/chunk/chunk_prepare/chunk_prepare.h"
#include "kernels/chunk/chunk_prepare/chunk_prepare_geometry.h"
#include "kernels/chunk/chunk_readings/chunk_readings.h"
#include "kernels/chunk/chunk_readings/chunk_readings_geometry.h"
#include "kernels/chunk/event_order/event_order.h"
#include "kernels/chunk/event_order/event_order_geometry.h"
#include "kernels/chunk/pair_matrices/pair_matrices.h"
#include "kernels/chunk/pair_matrices/pair_matrices_geometry.h"
#include "kernels/chunk/token_gradients/token_gradients.h"
#include "kernels/chunk/token_gradients/token_gradients_geometry.h"
#include "kernels/common/math/float_mode.h"
#include "kernels/layer/decode_step/decode_step.h"
#include "kernels/layer/decode_step/decode_step_geometry.h"
#include "kernels/layer/merge_readings/merge_readings.h"
#include "kernels/layer/merge_readings/merge_readings_geometry.h"
#include "kernels/layer/slot_select/slot_select.h"
#include "kernels/layer/slot_select/slot_select_geometry.h"
#include "kernels/layer/slot_select_grad/slot_select_grad.h"
#include "kernels/layer/slot_select_grad/slot_select_grad_geometry.h"
#include "kernels/layer/token_gates/token_gates.h"
#include "kernels/layer/token_gates/token_gates_geometry.h"
#include "kernels/layer/token_gates_grad/token_gates_grad.h"
#include "kernels/layer/token_gates_grad/token_gates_grad_geometry.h"
#include "kernels/rows/plane_reduce/plane_reduce.h"
#include "kernels/rows/plane_reduce/plane_reduce_geometry.h"
#include "kernels/step/step_kernels.h"
#include "run_grid.h"

namespace {

std::string last_error;

template <class Work>
int guarded(const Work& work) try {
  work();
  return 0;
} catch (const std::exception& error) {
  last_error = error.what();
  return 1;
}

std::optional<sdm::GradientPass> gradient_pass(std::string_view name) {
  if (name == "chunk_gradients_runs") return sdm::GradientPass::kRuns;
  if (name == "chunk_gradients_gates") return sdm::GradientPass::kGates;
  if (name == "chunk_gradients_tokens") return sdm::GradientPass::kTokens;
  if (name == "chunk_gradients_whole") return sdm::GradientPass::kWhole;
  return {};
}

const sdm::plancap::KernelInfo* look_up(std::string_view kernel) {
  if (const sdm::StepKernel* step = sdm::find_step_kernel(kernel)) return &step->info();
  for (const auto* info :
       {&sdm::plane_reduce_info(), &sdm::event_order_info(), &sdm::chunk_prepare_info(),
        &sdm::pair_matrices_info(), &sdm::chunk_inverse_info(), &sdm::chunk_readings_info(),
        &sdm::token_gradients_info(), &sdm::token_gates_info(), &sdm::token_gates_grad_info(),
        &sdm::decode_step_info(), &sdm::slot_select_info(), &sdm::slot_select_grad_info(),
        &sdm::merge_readings_info()}) {
    if (kernel == info->name) return info;
  }
  const auto pass = gradient_pass(kernel);
  if (pass || kernel == "chunk_gradients") {
    return &sdm::chunk_gradients_info(pass.value_or(sdm::GradientPass::kRuns));
  }
  return nullptr;
}

const sdm::plancap::KernelInfo& find(const char* kernel) {
  const auto* info = look_up(kernel);
  if (!info) throw std::runtime_error(std::string("no kernel ") + kernel);
  return *info;
}

sdm::StepGeometry geometry(std::string_view kernel, const void* params, int sm_count) {
  sdm::plancap::Target target;
  target.sm_count = sm_count;
  target.shared_bytes_optin = 232448;
  if (const sdm::StepKernel* step = sdm::find_step_kernel(kernel)) {
    return step->geometry(target, params);
  }
  if (kernel == "event_order")
    return event_order_geometry(target, *static_cast<const sdm::EventOrderParams*>(params));
  if (kernel == "chunk_prepare")
    return chunk_prepare_geometry(*static_cast<const sdm::ChunkPrepareParams*>(params));
  if (kernel == "pair_matrices")
    return pair_matrices_geometry(*static_cast<const sdm::PairMatricesParams*>(params));
  if (kernel == "chunk_inverse")
    return chunk_inverse_geometry(*static_cast<const sdm::ChunkInverseParams*>(params));
  if (kernel == "chunk_readings") {
    return chunk_readings_geometry(target, *static_cast<const sdm::ChunkReadingsParams*>(params));
  }
  if (kernel == "token_gradients")
    return token_gradients_geometry(*static_cast<const sdm::TokenGradientsParams*>(params));
  if (kernel == "decode_step") {
    const auto& decoding = *static_cast<const sdm::DecodeStepParams*>(params);
    return decode_step_geometry(target, decoding);
  }
  if (kernel == "slot_select")
    return slot_select_geometry(target, *static_cast<const sdm::SlotSelectParams*>(params));
  if (kernel == "slot_select_grad")
    return slot_select_grad_geometry(target,
                                     *static_cast<const sdm::SlotSelectGradParams*>(params));
  if (kernel.starts_with("chunk_gradients")) {
    const auto& chunks = *static_cast<const sdm::ChunkGradientsParams*>(params);
    target.backend = sdm::plancap::Backend::kCuda;
    const auto pass = gradient_pass(kernel);  // the first of those chosen, unless it is named
    return chunk_gradients_geometry(target, chunks,
                                    pass ? *pass : chunk_gradients_passes(target, chunks).front());
  }
  if (kernel == "merge_readings")
    return merge_readings_geometry(target, *static_cast<const sdm::MergeReadingsParams*>(params));
  if (kernel == "token_gates")
    return token_gates_geometry(*static_cast<const sdm::TokenGatesParams*>(params));
  if (kernel == "token_gates_grad") {
    // Of a device without clusters: the emulation has none.
    return token_gates_grad_geometry(target,
                                     *static_cast<const sdm::TokenGatesGradParams*>(params));
  }
  return plane_reduce_geometry(*static_cast<const sdm::PlaneReduceParams*>(params));
}

}  // namespace

extern "C" {

const char* emulation_error() { return last_error.c_str(); }

// sizes: the grid's x, y, z, the block's, dynamic shared bytes.
int emulate(const char* entry, const void* params, const uint32_t sizes[7], int backwards) {
  return guarded([&] {
    const sdm::FloatMode mode;
    for (const emulation::EmulatedKernel& known : emulation::kEmulatedKernels) {
      if (std::string_view(known.entry) != entry) continue;
      const emulation::Grid grid{sizes[0], sizes[1], sizes[2], sizes[3],
                                 sizes[4], sizes[5], sizes[6], backwards != 0};
      emulation::run_grid(grid, [&] { known.run(params); });
      return;
    }
    throw std::runtime_error("no such device function");
  });
}

int run_twin(const char* kernel, const void* params) {
  return guarded([&] { find(kernel).host(params); });
}

int choose(const char* kernel, const void* params, int sm_count, char entry[96],
           uint32_t sizes[7]) {
  return guarded([&] {
    const sdm::StepGeometry chosen = geometry(kernel, params, sm_count);
    std::snprintf(entry, 96, "%s", chosen.entry.c_str());
    const auto& [grid, block, cluster, shared_bytes, programmatic] = chosen.config;
    const uint32_t all[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes};
    std::copy(std::begin(all), std::end(all), sizes);
  });
}

// Row `field` of the kernel's field table: 0 past its end.
int kernel_field(const char* kernel, uint32_t field, const char** name, uint32_t* type,
                 uint32_t* offset, uint32_t* block_bytes) {
  const auto* info = look_up(kernel);
  if (!info || field >= info->fields.size()) return 0;
  *name = info->fields[field].name;
  *type = static_cast<uint32_t>(info->fields[field].type);
  *offset = info->fields[field].offset;
  *block_bytes = info->param_bytes;
  return 1;
}

}  // extern "C"
