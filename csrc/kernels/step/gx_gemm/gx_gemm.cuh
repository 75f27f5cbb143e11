// gx_gemm on the device: register tiles over shared-memory stages; every element is one thread's
// chain over j, so no tile changes a bit (DESIGN.md).
//
// operand   written in the chain by   loaded
// x         nothing                   before the wait, shared stages
// d_u       gx_gemm (this step's)     before the wait (kernels before it write other rows)
// d_dv      gx_gwr                    after the wait, L2, shared stages
#pragma once
#include "kernels/common/math/bf16.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/ptx/pdl.cuh"
#include "kernels/common/rows/raw_bits.cuh"
#include "kernels/step/gx_gemm/gx_gemm_params.h"
#include "kernels/step/gx_gemm/gx_gemm_tile.h"

namespace sdm {

// A [depth x kWidth] tile of a row-major matrix, from row `first_row`, column `first_column`, into
// shared memory. Rows past row_end and columns past column_end are left as they are: no element
// that exists is computed from them.
template <int kDepth, int kWidth, int kThreads, bool kVector>
__device__ __forceinline__ void stage_tile(float* to, const float* from, int32_t first_row,
                                           int32_t row_end, int32_t first_column,
                                           int32_t column_end, int32_t stride) {
  constexpr int kPieces = kVector ? kWidth / 4 : kWidth;
  constexpr int kFloats = kVector ? 4 : 1;
#pragma unroll
  for (int32_t i = 0; i < (kDepth * kPieces + kThreads - 1) / kThreads; ++i) {
    const int32_t piece = i * kThreads + static_cast<int32_t>(threadIdx.x);
    const int32_t row = first_row + piece / kPieces;
    const int32_t column = first_column + piece % kPieces * kFloats;
    if (piece < kDepth * kPieces && row < row_end && column < column_end) {
      ptx::copy_async<kFloats * 4>(to + piece * kFloats, from + int64_t{row} * stride + column);
    }
  }
}

// kCount consecutive floats of shared memory.
template <int kCount>
__device__ __forceinline__ void read_floats(const float* from, float* to) {
  if constexpr (kCount == 1) {
    to[0] = from[0];
  } else if constexpr (kCount == 2) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  } else {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
}

// kVector: hd and C are multiples of 4 and all operands aligned to 16 bytes.
template <GemmTile kTile, bool kVector>
class GxGemm {
  static constexpr int kThreads = kTile.threads();
  static constexpr int kStageFloats = kTile.stage_floats();
  static constexpr int kRows = kTile.thread_rows, kColumns = kTile.thread_columns;
  // A thread's tile is made of pieces of up to 4 x 4, spread so that neighbouring threads read
  // neighbouring pieces.
  static constexpr int kRowPiece = kRows < 4 ? kRows : 4;
  static constexpr int kColumnPiece = kColumns < 4 ? kColumns : 4;
  static constexpr int kRowSpread = kTile.rows / (kRows / kRowPiece);
  static constexpr int kColumnSpread = kTile.columns / (kColumns / kColumnPiece);
  static constexpr int kThreadColumns = kTile.columns / kColumns;

  static __device__ __forceinline__ int32_t tile_row(int32_t thread_row, int r) {
    return r / kRowPiece * kRowSpread + thread_row * kRowPiece + r % kRowPiece;
  }
  static __device__ __forceinline__ int32_t tile_column(int32_t thread_column, int c) {
    return c / kColumnPiece * kColumnSpread + thread_column * kColumnPiece + c % kColumnPiece;
  }

 public:
  static __device__ __forceinline__ void run(const GxGemmParams& params) {
    auto* shared = reinterpret_cast<float*>(ptx::dynamic_shared());
    const int32_t c_size = params.chunk_size, hd = params.hd;

    // Place. The grid: x = sequences, y = row tiles, z = column tiles.
    const int64_t chunk = int64_t{params.step} * params.num_parallel + blockIdx.x;
    const int32_t first_row = static_cast<int32_t>(blockIdx.y) * kTile.rows;
    const int32_t first_column = static_cast<int32_t>(blockIdx.z) * kTile.columns;
    const int32_t thread_column = static_cast<int32_t>(threadIdx.x) % kThreadColumns;
    const int32_t thread_row = static_cast<int32_t>(threadIdx.x) / kThreadColumns;
    const float* x = params.x + chunk * c_size * c_size;
    const float* d_dv = params.d_dv + chunk * c_size * hd;
    float* d_u = params.d_u + chunk * c_size * hd;

    const auto stage_x = [&](int32_t stage) {
      stage_tile<kTile.depth, kTile.rows, kThreads, kVector>(
          shared + stage % kTile.stages * kStageFloats, x, stage * kTile.depth, c_size, first_row,
          c_size, c_size);
    };
    const auto stage_d_dv = [&](int32_t stage) {
      stage_tile<kTile.depth, kTile.columns, kThreads, kVector>(
          shared + stage % kTile.stages * kStageFloats + kTile.depth * kTile.rows, d_dv,
          stage * kTile.depth, c_size, first_column, hd, hd);
      ptx::copy_commit();
    };

    // Fill the stages: x and d_u before the wait, d_dv after it.
#pragma unroll
    for (int32_t stage = 0; stage < kTile.stages; ++stage) stage_x(stage);
    const Place place{d_u, first_row, first_column, thread_row, thread_column, c_size, hd};
    float before[kRows][kColumns];
    if constexpr (kEarly) load(place, before);
    pdl_wait();
    pdl_trigger();
#pragma unroll
    for (int32_t stage = 0; stage < kTile.stages; ++stage) stage_d_dv(stage);

    // The chains over j.
    float acc[kRows][kColumns] = {};
    const int32_t stages = (c_size + kTile.depth - 1) / kTile.depth;
#pragma unroll 1
    for (int32_t stage = 0; stage < stages; ++stage) {
      ptx::copy_wait<kTile.stages - 1>();
      __syncthreads();
      const float* x_stage = shared + stage % kTile.stages * kStageFloats + tile_row(thread_row, 0);
      const float* d_stage = shared + stage % kTile.stages * kStageFloats +
                             kTile.depth * kTile.rows + tile_column(thread_column, 0);
      const int32_t depth = min(kTile.depth, c_size - stage * kTile.depth);
      if (depth == kTile.depth) {
#pragma unroll
        for (int32_t j = 0; j < kTile.depth; ++j) link(x_stage, d_stage, j, acc);
      } else {
#pragma unroll 1
        for (int32_t j = 0; j < depth; ++j) link(x_stage, d_stage, j, acc);
      }
      if (stage + kTile.stages < stages) {
        __syncthreads();
        stage_x(stage + kTile.stages);
        stage_d_dv(stage + kTile.stages);
      } else {
        ptx::copy_commit();
      }
    }

    // One addition to what d_u held.
    if constexpr (!kEarly) load(place, before);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[r][c] = plus(before[r][c], acc[r][c]);
    }
    store(place, acc);
  }

 private:
  static constexpr bool kEarly = kRows * kColumns <= 32;  // registers to hold d_u in meanwhile

  static __device__ __forceinline__ void link(const float* x_stage, const float* d_stage, int32_t j,
                                              float (&acc)[kRows][kColumns]) {
    float x[kRows], d[kColumns];
#pragma unroll
    for (int r = 0; r < kRows; r += kRowPiece) {
      read_floats<kRowPiece>(x_stage + j * kTile.rows + r / kRowPiece * kRowSpread, x + r);
    }
#pragma unroll
    for (int c = 0; c < kColumns; c += kColumnPiece) {
      read_floats<kColumnPiece>(d_stage + j * kTile.columns + c / kColumnPiece * kColumnSpread,
                                d + c);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[r][c] = fused(x[r], d[c], acc[r][c]);
    }
  }

  // The thread's elements of d_u.
  struct Place {
    float* d_u;  // of the chunk
    int32_t first_row, first_column;
    int32_t thread_row, thread_column;
    int32_t c_size, hd;

    // Calls use(address, r, c, how many) for every piece of a row that exists.
    template <class Use>
    __device__ __forceinline__ void pieces(const Use& use) const {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int32_t row = first_row + tile_row(thread_row, r);
        if (row >= c_size) continue;
#pragma unroll
        for (int c = 0; c < kColumns; c += kStep) {
          const int32_t column = first_column + tile_column(thread_column, c);
          if (column < hd) use(d_u + int64_t{row} * hd + column, r, c);
        }
      }
    }
  };
  static constexpr int kStep = kVector ? kColumnPiece : 1;

  static __device__ __forceinline__ void load(const Place& place, float (&to)[kRows][kColumns]) {
    place.pieces([&](const float* from, int r, int c) {
      const auto bits = load_bits<kStep * 4>(reinterpret_cast<const char*>(from));
#pragma unroll
      for (int i = 0; i < kStep; ++i) to[r][c + i] = bits_to_float(bits.word[i]);
    });
  }

  static __device__ __forceinline__ void store(const Place& place,
                                               const float (&from)[kRows][kColumns]) {
    place.pieces([&](float* to, int r, int c) {
      RawBits<kStep * 4> bits;
#pragma unroll
      for (int i = 0; i < kStep; ++i) bits.word[i] = float_to_bits(from[r][c + i]);
      store_bits(reinterpret_cast<char*>(to), bits);
    });
  }
};

}  // namespace sdm
