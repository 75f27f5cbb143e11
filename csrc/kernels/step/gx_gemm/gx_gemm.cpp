#include "kernels/step/gx_gemm/gx_gemm.h"

#include <limits>

#include "kernels/step/gx_gemm/gx_gemm_tile.h"
#include "plancap/base/error.h"

namespace sdm {
namespace {

constexpr const char* kName = "gx_gemm";

constexpr StepRow kRows[] = {
    SDM_OPERAND(GxGemmParams, d_u, "d_u", kChunkRows, kReadWrite).measures().loaded_early(),
    SDM_OPERAND(GxGemmParams, x, "x", kChunkSquares, kRead).loaded_early(),
    SDM_OPERAND(GxGemmParams, d_dv, "d_dv", kTokenRows, kRead),
    SDM_NUMBER(GxGemmParams, step),
    SDM_SIZE(GxGemmParams, num_parallel),
    SDM_NUMBER(GxGemmParams, chunk_size),
    SDM_NUMBER(GxGemmParams, hd),
};

struct Variant {
  const char* name;
  GemmTile tile;
  double step_cycles;  // of an SM for one block and one j, fused operations and shared reads
};

// Small tiles first: of two that cost the same the smaller one starts sooner.
constexpr Variant kVectorTiles[] = {{"16x32", kGemm16x32, 7.0},
                                    {"32x64", kGemm32x64, 18.0},
                                    {"64x64", kGemm64x64, 36.0},
                                    {"128x128", kGemm128x128, 140.0}};
constexpr Variant kAnyTiles[] = {{"8x16_any", kGemm8x16, 5.0}, {"32x64_any", kGemm32x64, 18.0}};

constexpr uint32_t kMostBlocksZ = 65535;

plancap::Dim3 grid(const GemmTile& tile, const GxGemmParams& params) {
  return {static_cast<uint32_t>(params.num_parallel),
          static_cast<uint32_t>((params.chunk_size + tile.rows - 1) / tile.rows),
          static_cast<uint32_t>((params.hd + tile.columns - 1) / tile.columns)};
}

// The SM with the most blocks decides.
const Variant& pick(std::span<const Variant> variants, const GxGemmParams& params, int sm_count) {
  const Variant* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Variant& variant : variants) {
    const plancap::Dim3 blocks = grid(variant.tile, params);
    if (blocks.z > kMostBlocksZ) continue;
    const uint64_t per_sm = (blocks.volume() + sm_count - 1) / sm_count;
    const double cycles = static_cast<double>(per_sm) * variant.step_cycles;
    if (cycles < least) best = &variant, least = cycles;
  }
  return *best;
}

StepGeometry geometry(const plancap::Target& target, const GxGemmParams& params) {
  const StoredRows operands[] = {{"d_u", params.d_u, RowType::kFloat32},
                                 {"x", params.x, RowType::kFloat32},
                                 {"d_dv", params.d_dv, RowType::kFloat32}};
  const bool vector = params.chunk_size % 4 == 0 && params.hd % 4 == 0 &&
                      piece_columns(params.hd, 4, operands) == 4;
  const Variant& variant = vector ? pick(kVectorTiles, params, target.sm_count)
                                  : pick(kAnyTiles, params, target.sm_count);
  StepGeometry chosen;
  chosen.entry = cat("gx_gemm_", variant.name);
  chosen.config.grid = grid(variant.tile, params);
  chosen.config.block.x = static_cast<uint32_t>(variant.tile.threads());
  chosen.config.shared_bytes = variant.tile.shared_bytes();
  chosen.alignments = piece_alignments(operands, vector ? 4 : 0);
  return chosen;
}

}  // namespace

constexpr StepKernel kGxGemm{kName, kRows, gx_gemm_info, step_geometry<GxGemmParams, geometry>};

const plancap::KernelInfo& gx_gemm_info() {
  static constexpr plancap::KernelInfo info =
      step_kernel_info<GxGemmParams, kRows, kGxGemm, gx_gemm_host>();
  return info;
}

}  // namespace sdm
