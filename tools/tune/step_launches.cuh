// The step kernels' variants, and launches of them on a problem.
#pragma once
#include <cstring>

#include "kernels/step/gx_gds/gx_gds.cuh"
#include "kernels/step/gx_gemm/gx_gemm.cuh"
#include "kernels/step/gx_gwr/gx_gwr.cuh"
#include "kernels/step/gx_pa2/gx_pa2.cuh"
#include "step_problem.cuh"

namespace tune {

using namespace sdm;

inline constexpr RowType kRow = RowType::kBFloat16;
inline constexpr int kSms = 132;

// Plain numbers as template arguments: nvcc 13.0 misspells classes in a kernel's stub.
template <int kCols, int kThreads, int kDepth, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    pa2(const __grid_constant__ GxPa2Params params) {
  gx_pa2_device<kRow, kRow, kRow, kCols, WalkShape{kThreads, kDepth, kBlocks}>(params);
}
template <int kCols, int kThreads, int kDepth, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gds(const __grid_constant__ GxGdsParams params) {
  gx_gds_device<kRow, kRow, kCols, WalkShape{kThreads, kDepth, kBlocks}>(params);
}
template <int kBatch, int kRingBytes>
__global__ void __launch_bounds__(256) gwr(const __grid_constant__ GxGwrParams params) {
  gx_gwr_device<kRow, 8, GatherShape{256, kBatch, kRingBytes}>(params);
}
template <int kRows, int kColumns, int kThreadRows, int kThreadColumns, int kDepth, int kStages>
__global__ void __launch_bounds__(kRows / kThreadRows * (kColumns / kThreadColumns))
    gemm(const __grid_constant__ GxGemmParams params) {
  GxGemm<GemmTile{kRows, kColumns, kThreadRows, kThreadColumns, kDepth, kStages}, true>::run(
      params);
}

// A kernel with its geometry and its own copy of the parameters.
struct Launch {
  std::string name;
  const void* function;
  dim3 grid, block;
  size_t shared;
  std::vector<char> params;
  size_t step_at;
  int shared_percent = -1;  // of an SM's L1; -1: the driver's choice

  void issue(cudaStream_t stream, int step, bool pdl) {
    std::memcpy(params.data() + step_at, &step, sizeof(step));
    cudaLaunchAttribute attributes[2]{};
    unsigned count = 0;
    if (pdl) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (shared_percent >= 0) {
      attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
      attributes[count++].val.sharedMemCarveout = unsigned(shared_percent);
    }
    cudaLaunchConfig_t config{grid, block, shared, stream, attributes, count};
    void* arguments[] = {params.data()};
    check(cudaLaunchKernelExC(&config, function, arguments), name.c_str());
  }
};

template <typename Params>
Launch make_launch(const char* what, const void* function, dim3 grid, dim3 block, size_t shared,
                   const Params& params) {
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024),
        "cudaFuncSetAttribute");
  char name[160];
  std::snprintf(name, sizeof(name), "%s, %.2f blocks per SM, %.1f KB each", what,
                double(grid.x) * grid.y * grid.z / kSms, shared / 1024.0);
  Launch launch{name,
                function,
                grid,
                block,
                shared,
                std::vector<char>(sizeof(params)),
                offsetof(Params, step)};
  std::memcpy(launch.params.data(), &params, sizeof(params));
  return launch;
}

// The library's tile: one wave of two blocks an SM, or 8 positions.
inline int library_tile(const Sizes& s, int columns, int block_warps) {
  const TeamLayout layout = team_layout(s.hd, columns);
  for (int tile = layout.groups_per_round; tile <= 32; tile *= 2) {
    const int positions = block_warps * tile;
    const int tiles = (s.entries() + positions - 1) / positions;
    if (layout.slice_groups * s.sequences * tiles <= 2 * kSms) return tile;
  }
  return 8;
}

// gx_pa2 and gx_gds with one shape, tiles of 1 to 32 positions: what fills an SM, but not twice.
// The library's tile comes first.
template <int kCols, int kThreads, int kDepth, int kBlocks>
void add_walks(std::vector<Launch>& pa2s, std::vector<Launch>& gdss, const Problem& p) {
  constexpr WalkShape kShape{kThreads, kDepth, kBlocks};
  const Sizes& s = p.sizes;
  const int groups = team_layout(s.hd, kCols).slice_groups;
  const size_t count = pa2s.size();
  const int first = library_tile(s, kCols, kShape.warps());
  for (int tile : {first, 1, 2, 4, 8, 16, 32}) {
    if (tile == first && pa2s.size() > count) continue;
    const int positions = kShape.warps() * tile;
    const int tiles = (s.entries() + positions - 1) / positions;
    const dim3 grid(groups * tiles, s.sequences);
    const double warps = double(grid.x) * grid.y * kShape.warps() / kSms;
    const bool waves = double(s.sequences) * s.entries() * s.slices() > 2e5;
    if (tile != first && (warps < 6 || (warps > 70 && !(waves && tile >= 8)))) continue;
    char text[96];
    std::snprintf(text, sizeof(text), "c%d %d threads depth %d, %d blocks, tile %d", kCols,
                  kThreads, kDepth, kBlocks, tile);
    const uint32_t lists = kShape.list_bytes(tile);
    pa2s.push_back(make_launch((std::string("pa2 ") + text).c_str(),
                               (const void*)pa2<kCols, kThreads, kDepth, kBlocks>, grid, kThreads,
                               pa2_ring_bytes(kShape, kRow, kRow, kCols) + lists, p.pa2));
    gdss.push_back(make_launch((std::string("gds ") + text).c_str(),
                               (const void*)gds<kCols, kThreads, kDepth, kBlocks>, grid, kThreads,
                               gds_ring_bytes(kShape, kRow, kRow, kCols) + lists, p.gds));
  }
}

template <int kBatch, int kRingBytes>
void add_gwrs(std::vector<Launch>& list, const Problem& p) {
  constexpr GatherShape kShape{256, kBatch, kRingBytes};
  const Sizes& s = p.sizes;
  const int tokens = s.sequences * s.chunk, slices = s.slices();
  for (const int warps : {4, 1, 2, 8}) {
    const int y = std::min(warps, slices), z = warps / y;
    char text[96];
    std::snprintf(text, sizeof(text), "gwr batch %d ring %d KB, block %dx%d", kBatch,
                  kRingBytes / 1024, y, z);
    list.push_back(make_launch(text, (const void*)gwr<kBatch, kRingBytes>,
                               dim3((tokens + z - 1) / z, (slices + y - 1) / y), dim3(32, y, z),
                               size_t(warps) * kShape.warp_bytes(kShape.staged_entries(s.writes)),
                               p.gwr));
  }
}

template <GemmTile kTile>
void add_gemm(std::vector<Launch>& list, const Problem& p) {
  const Sizes& s = p.sizes;
  const dim3 grid(s.sequences, (s.chunk + kTile.rows - 1) / kTile.rows,
                  (s.hd + kTile.columns - 1) / kTile.columns);
  const double per_sm = double(grid.x) * grid.y * grid.z / kSms;
  if (per_sm < 0.1 || per_sm > 20) return;
  char text[96];
  std::snprintf(text, sizeof(text), "gemm %dx%d of %dx%d, %d x %d deep", kTile.rows, kTile.columns,
                kTile.thread_rows, kTile.thread_columns, kTile.stages, kTile.depth);
  list.push_back(make_launch(text,
                             (const void*)gemm<kTile.rows, kTile.columns, kTile.thread_rows,
                                               kTile.thread_columns, kTile.depth, kTile.stages>,
                             grid, kTile.threads(), kTile.shared_bytes(), p.gemm));
}

}  // namespace tune
