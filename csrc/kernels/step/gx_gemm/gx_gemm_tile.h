// gx_gemm's tiles, as its kernels and its host geometry both need them.
#pragma once
#include <cstdint>

namespace sdm {

// A block computes rows x columns of one chunk's d_u; a thread thread_rows x thread_columns of
// them. depth steps of the sum travel as one stage; `stages` of them are in flight.
struct GemmTile {
  int32_t rows, columns;
  int32_t thread_rows, thread_columns;
  int32_t depth, stages;

  constexpr int32_t threads() const { return rows / thread_rows * (columns / thread_columns); }
  constexpr int32_t stage_floats() const { return depth * (rows + columns); }
  constexpr uint32_t shared_bytes() const {
    return static_cast<uint32_t>(stages * stage_floats()) * sizeof(float);
  }
};

inline constexpr GemmTile kGemm8x16{8, 16, 1, 2, 32, 2};
inline constexpr GemmTile kGemm16x32{16, 32, 2, 2, 32, 2};
inline constexpr GemmTile kGemm32x64{32, 64, 4, 4, 32, 3};
inline constexpr GemmTile kGemm64x64{64, 64, 8, 4, 32, 3};
inline constexpr GemmTile kGemm128x128{128, 128, 8, 8, 32, 3};

}  // namespace sdm
