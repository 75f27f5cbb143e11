// Times variants of the step kernels and of whole chains at the target shapes, inside CUDA graphs.
// Geometry constants (walk_shape.h's users, gx_gwr_shape.h, gx_gemm_tile.h and the *_geometry.cpp
// files) come from its output. Build and run:
//
//   nvcc -std=c++20 -O3 -fmad=false -gencode arch=compute_90a,code=sm_90a -I csrc
//     tools/tune/step_kernels.cu -o step_kernels && ./step_kernels [shape...]
#include <cstring>
#include <functional>

#include "kernels/gx_gds/gx_gds.cuh"
#include "kernels/gx_gemm/gx_gemm.cuh"
#include "kernels/gx_gwr/gx_gwr.cuh"
#include "kernels/gx_pa2/gx_pa2.cuh"
#include "step_problem.cuh"

using namespace sdm;
using namespace tune;

namespace {

constexpr RowType kRow = RowType::kBFloat16;

// Plain numbers as template arguments: nvcc 13.0 misspells classes in a kernel's stub.
template <int kCols, int kThreads, int kDepth, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    pa2(const __grid_constant__ GxPa2Params params) {
  gx_pa2_device<kRow, kRow, kRow, kCols, WalkShape{kThreads, kDepth}>(params);
}
template <int kCols, int kThreads, int kDepth, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gds(const __grid_constant__ GxGdsParams params) {
  gx_gds_device<kRow, kRow, kCols, WalkShape{kThreads, kDepth}>(params);
}
template <int kCols, int kBatch, int kRingBytes>
__global__ void __launch_bounds__(256) gwr(const __grid_constant__ GxGwrParams params) {
  gx_gwr_device<kRow, kCols, GatherShape{256, kBatch, kRingBytes}>(params);
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

  void issue(cudaStream_t stream, int step, bool pdl) {
    std::memcpy(params.data() + step_at, &step, sizeof(step));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{grid, block, shared, stream, &attribute, pdl ? 1u : 0u};
    void* arguments[] = {params.data()};
    check(cudaLaunchKernelExC(&config, function, arguments), name.c_str());
  }
};

template <typename Params>
Launch make_launch(std::string name, const void* function, dim3 grid, dim3 block, size_t shared,
                   const Params& params) {
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024),
        "cudaFuncSetAttribute");
  Launch launch{
      std::move(name),       function, grid, block, shared, std::vector<char>(sizeof(params)),
      offsetof(Params, step)};
  std::memcpy(launch.params.data(), &params, sizeof(params));
  return launch;
}

dim3 walk_grid(const Sizes& s, int columns, int warps, int tile) {
  const TeamLayout layout = team_layout(s.hd, columns);
  return dim3(s.streams, layout.slice_groups, (s.entries() + warps * tile - 1) / (warps * tile));
}

template <int kCols, WalkShape kShape, int kBlocks>
void add_walks(std::vector<Launch>& pa2s, std::vector<Launch>& gdss, const Problem& p) {
  for (const int tile : {2, 4, 8, 16, 32}) {
    const dim3 grid = walk_grid(p.sizes, kCols, kShape.warps(), tile);
    const double per_sm = double(grid.x) * grid.y * grid.z / 132;
    if (per_sm < 0.4 || per_sm * kShape.warps() > 80 * (p.sizes.entries() > 8192 ? 100 : 1))
      continue;
    char text[96];
    std::snprintf(text, sizeof(text), "c%d %d threads depth %d, %d blocks, tile %d (%.2f per SM)",
                  kCols, kShape.threads, kShape.depth, kBlocks, tile, per_sm);
    pa2s.push_back(make_launch(std::string("pa2 ") + text,
                               (const void*)pa2<kCols, kShape.threads, kShape.depth, kBlocks>, grid,
                               kShape.threads, pa2_shared_bytes(kShape, kRow, kRow, kCols), p.pa2));
    gdss.push_back(make_launch(std::string("gds ") + text,
                               (const void*)gds<kCols, kShape.threads, kShape.depth, kBlocks>, grid,
                               kShape.threads, gds_shared_bytes(kShape, kRow, kRow, kCols), p.gds));
  }
}

template <int kCols, GatherShape kShape>
void add_gwrs(std::vector<Launch>& list, const Problem& p) {
  const Sizes& s = p.sizes;
  const int tokens = s.streams * s.chunk, slices = s.slices();
  for (int warps = 1; warps * 32 <= kShape.threads; warps *= 2) {
    const int y = std::min(warps, slices), z = warps / y;
    const size_t shared = size_t(warps) * kShape.warp_bytes(kShape.staged_entries(s.writes));
    if (shared > 227 * 1024) continue;
    char text[96];
    std::snprintf(text, sizeof(text), "gwr c%d batch %d ring %d KB, block %dx%d", kCols,
                  kShape.batch, kShape.ring_bytes / 1024, y, z);
    list.push_back(make_launch(text, (const void*)gwr<kCols, kShape.batch, kShape.ring_bytes>,
                               dim3((tokens + z - 1) / z, (slices + y - 1) / y), dim3(32, y, z),
                               shared, p.gwr));
  }
}

template <GemmTile kTile>
void add_gemm(std::vector<Launch>& list, const Problem& p) {
  const Sizes& s = p.sizes;
  const dim3 grid(s.streams, (s.chunk + kTile.rows - 1) / kTile.rows,
                  (s.hd + kTile.columns - 1) / kTile.columns);
  char text[96];
  std::snprintf(text, sizeof(text), "gemm %dx%d of %dx%d, %d x %d deep (%.2f per SM)", kTile.rows,
                kTile.columns, kTile.thread_rows, kTile.thread_columns, kTile.stages, kTile.depth,
                double(grid.x) * grid.y * grid.z / 132);
  list.push_back(make_launch(text,
                             (const void*)gemm<kTile.rows, kTile.columns, kTile.thread_rows,
                                               kTile.thread_columns, kTile.depth, kTile.stages>,
                             grid, kTile.threads(), kTile.shared_bytes(), p.gemm));
}

// us per step of a graph that issues `chain` for every step, the last first.
float time_chain(std::vector<Launch*> chain, int steps, bool pdl) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int step = steps - 1; step >= 0; --step) {
    for (Launch* launch : chain) {
      launch->issue(stream, step, pdl && !(step == steps - 1 && launch == chain.front()));
    }
  }
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamEndCapture(stream, &graph), "end capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < 7; ++i) {
    check(cudaEventRecord(begin, stream), "record");
    check(cudaGraphLaunch(exec, stream), "launch");
    check(cudaEventRecord(end, stream), "record");
    check(cudaStreamSynchronize(stream), "run");
    float ms;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (i >= 2) times.push_back(ms * 1000 / steps);
  }
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
  cudaEventDestroy(begin), cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// The fastest variant alone; prints all.
Launch* best(std::vector<Launch>& list, const Sizes& s, double floor_us) {
  Launch* found = nullptr;
  float least = 1e30f;
  for (Launch& launch : list) {
    const float plain = time_chain({&launch}, s.steps, false);
    const float early = time_chain({&launch}, s.steps, true);
    std::printf("%-9s %7.2f us  pdl %7.2f  floor %6.2f  %s\n", s.name.c_str(), plain, early,
                floor_us, launch.name.c_str());
    if (plain < least) least = plain, found = &launch;
  }
  std::fflush(stdout);
  return found;
}

// Blocks of a launch spread over the SMs: shared memory for no more than its share of an SM.
Launch spread(Launch launch) {
  const size_t blocks = size_t(launch.grid.x) * launch.grid.y * launch.grid.z;
  const size_t per_sm = (blocks + 131) / 132;
  if (per_sm <= 3) launch.shared = std::max(launch.shared, 227 * 1024 / (per_sm + 1) + 256);
  return launch;
}

void run_shape(const Sizes& sizes) {
  Problem p = make_problem(sizes);
  std::vector<Launch> gwrs, gemms, pa2s, gdss;
  add_gwrs<8, GatherShape{256, 8, 4096}>(gwrs, p);
  add_gwrs<8, GatherShape{256, 8, 8192}>(gwrs, p);
  add_gwrs<8, GatherShape{256, 8, 16384}>(gwrs, p);
  add_gwrs<8, GatherShape{256, 4, 8192}>(gwrs, p);
  add_gwrs<8, GatherShape{256, 16, 16384}>(gwrs, p);
  add_gwrs<4, GatherShape{256, 8, 8192}>(gwrs, p);
  add_gemm<kGemm8x16>(gemms, p);
  add_gemm<GemmTile{8, 16, 1, 1, 32, 2}>(gemms, p);
  add_gemm<GemmTile{8, 32, 1, 4, 32, 2}>(gemms, p);
  add_gemm<GemmTile{16, 32, 2, 2, 32, 2}>(gemms, p);
  add_gemm<kGemm16x64>(gemms, p);
  add_gemm<GemmTile{16, 64, 2, 2, 32, 2}>(gemms, p);
  add_gemm<GemmTile{16, 64, 4, 4, 32, 2}>(gemms, p);
  add_gemm<kGemm32x64>(gemms, p);
  add_gemm<GemmTile{32, 64, 2, 4, 32, 2}>(gemms, p);
  add_gemm<kGemm64x64>(gemms, p);
  add_gemm<GemmTile{64, 64, 4, 4, 32, 3}>(gemms, p);
  add_gemm<GemmTile{64, 128, 8, 8, 16, 4}>(gemms, p);
  add_gemm<kGemm128x128>(gemms, p);
  add_gemm<GemmTile{128, 128, 8, 8, 8, 4}>(gemms, p);
  add_gemm<GemmTile{128, 128, 8, 8, 32, 3}>(gemms, p);
  add_walks<8, WalkShape{256, 4}, 1>(pa2s, gdss, p);
  add_walks<8, WalkShape{256, 8}, 1>(pa2s, gdss, p);
  add_walks<8, WalkShape{256, 2}, 1>(pa2s, gdss, p);
  add_walks<8, WalkShape{256, 4}, 4>(pa2s, gdss, p);
  add_walks<8, WalkShape{128, 4}, 1>(pa2s, gdss, p);
  add_walks<4, WalkShape{256, 4}, 1>(pa2s, gdss, p);

  // Floors: bytes of rows, each row read or written once, at 2.2 TB/s gathered, 3.3 TB/s mixed.
  const double rows = double(sizes.streams) * sizes.entries() * sizes.hd * 2;
  Launch* chain[] = {best(gwrs, sizes, rows / 2.2e6), best(gemms, sizes, 0),
                     best(pa2s, sizes, 4 * rows / 3.3e6), best(gdss, sizes, 3 * rows / 3.3e6)};
  std::vector<Launch> capped;
  for (Launch* launch : chain) capped.push_back(spread(*launch));
  const auto report = [&](const char* what, std::vector<Launch*> launches, bool pdl) {
    std::printf("%-9s %7.2f us per step: chain %s\n", sizes.name.c_str(),
                time_chain(launches, sizes.steps, pdl), what);
  };
  report("plain", {chain[0], chain[1], chain[2], chain[3]}, false);
  report("pdl", {chain[0], chain[1], chain[2], chain[3]}, true);
  report("pdl, gwr and gemm spread", {&capped[0], &capped[1], chain[2], chain[3]}, true);
  report("pdl, gemm spread", {chain[0], &capped[1], chain[2], chain[3]}, true);
  report("pdl, all spread", {&capped[0], &capped[1], &capped[2], &capped[3]}, true);
  report("plain, no gemm", {chain[0], chain[2], chain[3]}, false);
  std::fflush(stdout);
  free_problem(p);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Sizes& sizes : target_shapes()) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || sizes.name == argv[i];
    if (wanted) run_shape(sizes);
  }
  return 0;
}
