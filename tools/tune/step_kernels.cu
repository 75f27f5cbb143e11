// Searches the step kernels' variants for the fastest chain at the target shapes, inside CUDA
// graphs of programmatic launches. A kernel is judged by its chain: how its blocks share the SMs
// with its neighbours' decides more than its time alone. Geometry constants (walk_shape.h's users,
// gx_gwr_shape.h, gx_gemm_tile.h, step_geometry.h and the *_geometry.cpp files) come from here.
// Build and run (not with --split-compile, which leaves arrays in local memory):
//
//   nvcc -std=c++20 -O3 -fmad=false -gencode arch=compute_90a,code=sm_90a -I csrc
//     tools/tune/step_kernels.cu -o step_kernels && ./step_kernels [shape...]
#include "step_timing.cuh"

using namespace tune;

namespace {

struct Variants {
  std::vector<Launch> of[4];  // gwr, gemm, pa2, gds; the first of each starts the search
};

Variants make_variants(const Problem& p) {
  Variants all;
  auto& [gwrs, gemms, pa2s, gdss] = all.of;
  add_gwrs<8, 8192>(gwrs, p);
  add_gwrs<8, 4096>(gwrs, p);
  add_gwrs<8, 6144>(gwrs, p);
  add_gwrs<8, 16384>(gwrs, p);
  add_gwrs<4, 8192>(gwrs, p);
  add_gemm<kGemm16x32>(gemms, p);
  add_gemm<kGemm8x16>(gemms, p);
  add_gemm<GemmTile{8, 32, 1, 2, 32, 2}>(gemms, p);
  add_gemm<GemmTile{8, 32, 1, 4, 32, 2}>(gemms, p);
  add_gemm<GemmTile{16, 32, 1, 4, 32, 2}>(gemms, p);
  add_gemm<GemmTile{16, 64, 2, 2, 32, 2}>(gemms, p);
  add_gemm<GemmTile{16, 64, 2, 4, 32, 2}>(gemms, p);
  add_gemm<kGemm32x64>(gemms, p);
  add_gemm<kGemm64x64>(gemms, p);
  add_gemm<GemmTile{64, 64, 4, 4, 32, 3}>(gemms, p);
  add_gemm<GemmTile{64, 128, 4, 8, 16, 4}>(gemms, p);
  add_gemm<GemmTile{128, 128, 8, 8, 16, 4}>(gemms, p);
  add_gemm<kGemm128x128>(gemms, p);
  add_walks<8, 256, 2, 4>(pa2s, gdss, p);
  add_walks<8, 256, 4, 4>(pa2s, gdss, p);
  add_walks<8, 256, 2, 1>(pa2s, gdss, p);
  add_walks<8, 128, 2, 8>(pa2s, gdss, p);
  add_walks<8, 128, 4, 8>(pa2s, gdss, p);
  add_walks<8, 512, 2, 2>(pa2s, gdss, p);
  add_walks<4, 256, 2, 4>(pa2s, gdss, p);
  return all;
}

class Search {
 public:
  Search(const Problem& p, Variants& all) : sizes_(p.sizes), all_(all), results_(p) {
    for (int kernel = 0; kernel < 4; ++kernel) chain_[kernel] = all.of[kernel].front();
    set_shared(58);
    least_ = time(true);
  }

  // The variant of a kernel with which the chain is fastest takes its place.
  void kernel(int which) {
    for (const Launch& variant : all_.of[which]) {
      const Launch before = chain_[which];
      chain_[which] = variant;
      chain_[which].shared_percent = before.shared_percent;
      const float alone = time_chain({&chain_[which]}, sizes_.steps, true);
      const float together = time(true);
      std::printf("%-9s chain %8.2f  alone %8.2f  %s\n", sizes_.name.c_str(), together, alone,
                  variant.name.c_str());
      if (together < least_) {
        least_ = together;
      } else {
        chain_[which] = before;
      }
    }
  }

  // One share of shared memory for all kernels: two with different ones never run on one SM.
  void shared() {
    int best = chain_[0].shared_percent;
    for (const int percent : {-1, 44, 50, 58, 72, 86}) {
      set_shared(percent);
      const float us = time(true);
      std::printf("%-9s chain %8.2f  plain %8.2f  shared memory %d %%\n", sizes_.name.c_str(), us,
                  time(false), percent);
      if (us < least_) least_ = us, best = percent;
    }
    set_shared(best);
  }

  void report(const char* what) {
    const unsigned long long plain = results_.of(launches(), false);
    if (expected_ == 0) expected_ = plain;
    const bool same = plain == expected_ && results_.of(launches(), true) == expected_;
    std::printf("%-9s %s: chain plain %.2f, programmatic %.2f us a step, %s\n", sizes_.name.c_str(),
                what, time(false), time(true), same ? "same results" : "OTHER RESULTS");
    for (Launch& launch : chain_) {
      std::printf("%-9s   %7.2f / %7.2f  %s, shared %d %%\n", sizes_.name.c_str(),
                  time_chain({&launch}, sizes_.steps, false),
                  time_chain({&launch}, sizes_.steps, true), launch.name.c_str(),
                  launch.shared_percent);
    }
    std::fflush(stdout);
  }

 private:
  std::vector<Launch*> launches() { return {&chain_[0], &chain_[1], &chain_[2], &chain_[3]}; }
  float time(bool pdl) { return time_chain(launches(), sizes_.steps, pdl); }
  void set_shared(int percent) {
    for (Launch& launch : chain_) launch.shared_percent = percent;
  }

  const Sizes& sizes_;
  Variants& all_;
  Results results_;
  Launch chain_[4];
  float least_;
  unsigned long long expected_ = 0;
};

void run_shape(const Sizes& sizes) {
  Problem p = make_problem(sizes);
  Variants all = make_variants(p);
  {
    Search search(p, all);
    for (const char* pass : {"first pass", "second pass"}) {
      for (const int kernel : {1, 2, 3, 0}) search.kernel(kernel);
      search.shared();
      search.report(pass);
    }
  }
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
