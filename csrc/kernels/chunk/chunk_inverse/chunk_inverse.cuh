// chunk_inverse on the device: a block makes 32 columns of a chunk's X and QX, a lane each. One
// warp solves X 32 rows at a time, in registers, and leaves them in shared memory; the other one
// makes QX, one step of 32 rows behind. An ordinary launch before the chain: it waits for no grid.
#pragma once
#include "kernels/chunk/chunk_inverse/chunk_inverse_math.h"
#include "kernels/chunk/chunk_inverse/chunk_inverse_params.h"
#include "kernels/chunk/chunk_inverse/chunk_inverse_tile.h"
#include "kernels/common/ptx/ptx.cuh"

namespace sdm {

// The 32 x 32 squares of a triangle that one warp needs, row by row from the tile's own on: copied
// ahead into the warp's stages. What a square lacks past the matrix's edge is left as it is: no
// element that exists is computed from it.
class TriangleSquares {
 public:
  __device__ TriangleSquares(const float* matrix, const ChunkInverseParams& params, int32_t tile,
                             float* stages)
      : matrix_(matrix),
        chunk_size_(params.chunk_size),
        tile_(tile),
        lane_(static_cast<int32_t>(threadIdx.x) % 32),
        wide_(params.wide != 0),
        stages_(stages),
        next_row_(tile),
        next_column_(tile) {
#pragma unroll 1
    for (int32_t stage = 0; stage < kInverseStages; ++stage) fetch(stage);
  }

  // The next square, row-major, once all lanes' copies are there.
  __device__ const float* take() {
    ptx::copy_wait<kInverseStages - 1>();
    __syncwarp();
    return stages_ + stage_ * kStageFloats;
  }

  // All lanes have read the square: its stage takes a later one.
  __device__ void release() {
    __syncwarp();
    fetch(stage_);
    stage_ = stage_ + 1 < kInverseStages ? stage_ + 1 : 0;
  }

 private:
  __device__ void fetch(int32_t stage) {
    const int32_t row = next_row_ * kInverseTile, column = next_column_ * kInverseTile;
    if (row < chunk_size_) {
      const int32_t rows = min(kInverseTile, chunk_size_ - row);
      const int32_t columns = min(kInverseTile, chunk_size_ - column);
      const float* from = matrix_ + row * chunk_size_ + column;
      float* to = stages_ + stage * kStageFloats;
      if (wide_) {
        copy_rows<4>(to, from, rows, columns);
      } else {
        copy_rows<1>(to, from, rows, columns);
      }
      const bool last = next_column_ == next_row_;
      next_row_ += last ? 1 : 0;
      next_column_ = last ? tile_ : next_column_ + 1;
    }
    ptx::copy_commit();  // an empty group counts too
  }

  template <int kFloats>
  __device__ void copy_rows(float* to, const float* from, int32_t rows, int32_t columns) {
    constexpr int32_t kPieces = kInverseTile / kFloats, kTogether = 32 / kPieces;
    const int32_t first = lane_ / kPieces, column = lane_ % kPieces * kFloats;
    if (column >= columns) return;
    from += first * chunk_size_ + column;
    to += first * kInverseTile + column;
#pragma unroll 4
    for (int32_t row = first; row < rows; row += kTogether) {
      ptx::copy_async<kFloats * 4>(to, from);
      from += kTogether * chunk_size_;
      to += kTogether * kInverseTile;
    }
  }

  const float* matrix_;
  const int32_t chunk_size_, tile_, lane_;
  const bool wide_;
  float* stages_;
  int32_t next_row_, next_column_;  // of the square to fetch, in squares
  int32_t stage_ = 0;
};

// A lane's column of 32 rows.
using ColumnPart = float[kInverseTile];

__device__ __forceinline__ float4 square_row(const float* square, int32_t row, int32_t column) {
  return *reinterpret_cast<const float4*>(square + row * kInverseTile + column);
}

// Four links of a row: factors with x, those that the lane takes.
template <TriangleChain kChain>
__device__ __forceinline__ void add_four(const float4& factors, const float (&x)[4],
                                         const bool (&takes)[4], float& sum) {
  if (takes[0]) sum = add_link<kChain>(factors.x, x[0], sum);
  if (takes[1]) sum = add_link<kChain>(factors.y, x[1], sum);
  if (takes[2]) sum = add_link<kChain>(factors.z, x[2], sum);
  if (takes[3]) sum = add_link<kChain>(factors.w, x[3], sum);
}

// Links come with a place `own`, the lane's own row among the square's columns, or -1 where all of
// them lie behind it: the lane takes the links j > own.

// Adds a whole square, of which x are the lane's 32 rows in shared memory.
template <TriangleChain kChain>
__device__ __forceinline__ void add_square(const float* square, const float* x, int32_t own,
                                           ColumnPart& sums) {
#pragma unroll 1
  for (int32_t j = 0; j < kInverseTile; j += 4) {
    float link[4];
    bool takes[4];
#pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
      link[k] = x[(j + k) * kXStride];
      takes[k] = own < j + k;
    }
#pragma unroll
    for (int32_t i = 0; i < kInverseTile; ++i) {
      add_four<kChain>(square_row(square, i, j), link, takes, sums[i]);
    }
  }
}

// Solves a diagonal square: row i of `sums` is X once the links of the rows before it are in, and
// the last one, of the lane's own column of the matrix.
__device__ __forceinline__ void solve_square(const float* square, const float* own_column,
                                             int32_t own, ColumnPart& sums) {
#pragma unroll
  for (int32_t j = 0; j < kInverseTile; j += 4) {
#pragma unroll
    for (int32_t i = j; i < kInverseTile; ++i) {
      const float4 factors = square_row(square, i, j);
      const float of[4] = {factors.x, factors.y, factors.z, factors.w};
#pragma unroll
      for (int32_t k = 0; k < 4; ++k) {
        if (j + k < i && own < j + k) {
          sums[i] = add_link<TriangleChain::kInverse>(of[k], sums[j + k], sums[i]);
        }
      }
      if (i >= j + 4) continue;
      if (own < i) sums[i] = add_own<TriangleChain::kInverse>(own_column[i * kXStride], sums[i]);
      if (own == i) sums[i] = 1.0f;
    }
  }
}

// Adds a diagonal square of qk, and what is on its diagonal.
__device__ __forceinline__ void add_triangle(const float* square, const float* x, int32_t own,
                                             ColumnPart& sums) {
#pragma unroll
  for (int32_t j = 0; j < kInverseTile; j += 4) {
    float link[4];
#pragma unroll
    for (int32_t k = 0; k < 4; ++k) link[k] = x[(j + k) * kXStride];
#pragma unroll
    for (int32_t i = j; i < kInverseTile; ++i) {
      const float4 factors = square_row(square, i, j);
      const float of[4] = {factors.x, factors.y, factors.z, factors.w};
#pragma unroll
      for (int32_t k = 0; k < 4; ++k) {
        if (j + k <= i && own < j + k) {
          sums[i] = add_link<TriangleChain::kProduct>(of[k], link[k], sums[i]);
        }
      }
    }
  }
}

class ChunkInverse {
 public:
  __device__ ChunkInverse(const ChunkInverseParams& params, const InversePlace& place,
                          float* shared)
      : params_(params),
        chunk_size_(params.chunk_size),
        tile_(place.tile),
        tiles_(inverse_tiles(params.chunk_size)),
        lane_(static_cast<int32_t>(threadIdx.x) % 32),
        column_(place.tile * kInverseTile + lane_),
        token_(int64_t{place.chunk} * params.chunk_size),
        first_(token_ * params.chunk_size),
        qk_column_(shared + kInverseThreads / 32 * kInverseStages * kStageFloats + lane_),
        x_(shared + kInverseThreads / 32 * kInverseStages * kStageFloats + kOwnFloats) {}

  __device__ void solve(float* stages) const {
    TriangleSquares squares(params_.system + first_, params_, tile_, stages);
    if (params_.x != nullptr) store_zeros(params_.x + first_);
#pragma unroll 1
    for (int32_t row = tile_; row < tiles_; ++row) {
      ColumnPart sums = {};
      float* const x = x_rows(row);  // until it is known, the matrix's own column
#pragma unroll 1
      for (int32_t column = tile_; column <= row; ++column) {
        const float* square = squares.take();
        if (column == tile_) keep_column(square, x);
        if (column < row) {
          add_square<TriangleChain::kInverse>(square, x_rows(column), own_place(column), sums);
        } else {
          solve_square(square, x, own_place(row), sums);
        }
        squares.release();
      }
#pragma unroll
      for (int32_t i = 0; i < kInverseTile; ++i) x[i * kXStride] = sums[i];
      __syncthreads();  // the other warp may go on
      if (params_.x != nullptr) store_rows(params_.x + first_, row, sums);
    }
  }

  // QX and X diag(beta).
  __device__ void multiply(float* stages) const {
    TriangleSquares squares(params_.qk + first_, params_, tile_, stages);
    const float beta = own_beta();
    store_zeros(params_.qx + first_);
    store_scaled_zeros();
#pragma unroll 1
    for (int32_t row = tile_; row < tiles_; ++row) {
      __syncthreads();  // the rows of X are there
      ColumnPart sums = {};
#pragma unroll 1
      for (int32_t column = tile_; column <= row; ++column) {
        const float* square = squares.take();
        if (column == tile_) keep_column(square, qk_column_);
        if (column < row) {
          add_square<TriangleChain::kProduct>(square, x_rows(column), own_place(column), sums);
        } else {
          add_triangle(square, x_rows(row), own_place(row), sums);
        }
        squares.release();
      }
      add_qk_column(own_place(row), sums);
      store_rows(params_.qx + first_, row, sums);
      store_scaled(row, beta);
    }
  }

  // X diag(beta) alone.
  __device__ void scale() const {
    const float beta = own_beta();
    store_scaled_zeros();
#pragma unroll 1
    for (int32_t row = tile_; row < tiles_; ++row) {
      __syncthreads();  // the rows of X are there
      store_scaled(row, beta);
    }
  }

 private:
  __device__ float own_beta() const {
    return column_ < chunk_size_ ? params_.beta_rows[token_ + column_] : 0.0f;
  }

  // The lane's column of X in 32 rows.
  __device__ float* x_rows(int32_t row) const {
    return x_ + (row - tile_) * kInverseTile * kXStride + lane_;
  }

  // The lane's own row among the rows (or columns) of a square, or -1 where they lie behind it.
  __device__ int32_t own_place(int32_t square) const { return square == tile_ ? lane_ : -1; }

  // The lane's own column, which the first square of a row holds, for the end of its chains.
  __device__ void keep_column(const float* square, float* to) const {
#pragma unroll 8
    for (int32_t i = 0; i < kInverseTile; ++i) to[i * kXStride] = square[i * kInverseTile + lane_];
  }

  __device__ void add_qk_column(int32_t own, ColumnPart& sums) const {
#pragma unroll
    for (int32_t i = 0; i < kInverseTile; ++i) {
      if (own <= i) {
        sums[i] = add_own<TriangleChain::kProduct>(qk_column_[i * kXStride], sums[i]);
      }
    }
  }

  __device__ void store_rows(float* matrix, int32_t row, const ColumnPart& values) const {
    if (column_ >= chunk_size_) return;
    const int32_t first = row * kInverseTile, rows = chunk_size_ - first;
    const auto stride = static_cast<int32_t>(ptx::opaque(static_cast<uint32_t>(chunk_size_)));
    float* to = matrix + first * chunk_size_ + column_;
#pragma unroll
    for (int32_t i = 0; i < kInverseTile; ++i) {
      if (i < rows) *to = values[i];
      to += stride;
    }
  }

  // The rows above the tile's own.
  __device__ void store_zeros(float* matrix) const {
    if (column_ >= chunk_size_) return;
    float* to = matrix + column_;
#pragma unroll 8
    for (int32_t i = 0; i < tile_ * kInverseTile; ++i, to += chunk_size_) *to = 0.0f;
  }

  // The tile's columns of X as rows of its transpose: a lane is a row of X.
  __device__ void store_scaled(int32_t row, float beta) const {
    const float* x = x_ + ((row - tile_) * kInverseTile + lane_) * kXStride;
    const int32_t i = row * kInverseTile + lane_, first = tile_ * kInverseTile;
    float* to = params_.scaled + first_ + first * chunk_size_ + i;
#pragma unroll 8
    for (int32_t c = 0; c < kInverseTile; ++c, to += chunk_size_) {
      const float scale = __shfl_sync(~0u, beta, c);
      if (first + c < chunk_size_ && i < chunk_size_) {
        *to = i < first + c ? 0.0f : times(scale, x[c]);
      }
    }
  }
  __device__ void store_scaled_zeros() const {
    const int32_t first = tile_ * kInverseTile;
    const int32_t rows = min(kInverseTile, chunk_size_ - first);
    float* to = params_.scaled + first_ + first * chunk_size_ + lane_;
    for (int32_t i = 0; i < first; i += 32, to += 32) {
      float* row = to;
#pragma unroll 8
      for (int32_t c = 0; c < rows; ++c, row += chunk_size_) *row = 0.0f;
    }
  }

  const ChunkInverseParams& params_;
  const int32_t chunk_size_, tile_, tiles_, lane_;
  const int32_t column_;         // of the chunk, this lane's
  const int64_t token_, first_;  // the chunk's first token, and its matrices' first element
  float* const qk_column_;       // a lane's own column of qk, 32 rows
  float* const x_;
};

__device__ __forceinline__ void chunk_inverse_device(const ChunkInverseParams& params) {
  auto* shared = reinterpret_cast<float*>(ptx::dynamic_shared());
  const InversePlace place = inverse_place(blockIdx.x, params.num_chunks, params.chunk_size);
  const ChunkInverse block(params, place, shared);
  if (threadIdx.x < 32) {
    block.solve(shared);
  } else if (params.qx != nullptr) {
    block.multiply(shared + kInverseStages * kStageFloats);
  } else {
    block.scale();
  }
}

}  // namespace sdm
