#include <atomic>

#include "kernels/step/blas_gemm/blas_gemm.h"
#include "plancap/base/loaded_library.h"

namespace sdm {
namespace {

// cublas_api.h, written out: the headers are not needed to build, nor the library to link.
enum Operation : int { kPlain = 0, kTransposed = 1 };
using SgemmStridedBatched = int (*)(void* handle, Operation op_a, Operation op_b, int m, int n,
                                    int k, const float* alpha, const float* a, int lda,
                                    long long stride_a, const float* b, int ldb, long long stride_b,
                                    const float* beta, float* c, int ldc, long long stride_c,
                                    int batch);

// One call in the library's column-major terms: c[m, n] = op(a)[m, k] op(b)[k, n] + c.
struct Call {
  int m, n, k;
  const float* a;
  int lda;
  const float* b;
  int ldb;
  int ldc;
  long long stride_a, stride_b;
};

// As torch maps baddbmm(d_u, x^T, d_dv): a row-major result is a transposed column-major one, so
// the operands swap: d_u^T[hd, C] += d_dv^T[hd, C] x[C, C], where row-major d_dv is column-major
// d_dv^T already and x is what the library must transpose.
Call wide_call(const BlasGemmParams& p) {
  const int c = p.chunk_size;
  const long long square = static_cast<long long>(c) * c;
  return {p.hd, c, c, p.d_dv, p.hd, p.x, c, p.hd, static_cast<long long>(c) * p.hd, square};
}

// With one column torch takes d_u for column-major as it stands, and swaps nothing.
Call one_column_call(const BlasGemmParams& p) {
  const int c = p.chunk_size;
  const long long square = static_cast<long long>(c) * c;
  return {c, 1, c, p.x, c, p.d_dv, 1, c, square, c};
}

constexpr int kAllocFailed = 3;

const char* status_text(int status) {
  switch (status) {
    case 1:
      return "cublasSgemmStridedBatched: CUBLAS_STATUS_NOT_INITIALIZED (1)";
    case kAllocFailed:
      return "cublasSgemmStridedBatched: CUBLAS_STATUS_ALLOC_FAILED (3)";
    case 7:
      return "cublasSgemmStridedBatched: CUBLAS_STATUS_INVALID_VALUE (7)";
    case 8:
      return "cublasSgemmStridedBatched: CUBLAS_STATUS_ARCH_MISMATCH (8)";
    case 11:
      return "cublasSgemmStridedBatched: CUBLAS_STATUS_MAPPING_ERROR (11)";
    case 13:
      return "cublasSgemmStridedBatched: CUBLAS_STATUS_EXECUTION_FAILED (13)";
    case 14:
      return "cublasSgemmStridedBatched: CUBLAS_STATUS_INTERNAL_ERROR (14)";
    case 15:
      return "cublasSgemmStridedBatched: CUBLAS_STATUS_NOT_SUPPORTED (15)";
    default:
      return "cublasSgemmStridedBatched: an unknown cuBLAS status";
  }
}

}  // namespace

plancap::LibraryFailure blas_gemm_call(const BlasGemmParams& params, void* handle) {
  static std::atomic<SgemmStridedBatched> function{nullptr};
  SgemmStridedBatched sgemm = function.load(std::memory_order_acquire);
  if (!sgemm) {
    const plancap::LoadedSymbol found =
        plancap::find_loaded("libcublas.so", "cublasSgemmStridedBatched");
    if (found.failure) return {found.failure};
    sgemm = reinterpret_cast<SgemmStridedBatched>(found.address);
    function.store(sgemm, std::memory_order_release);
  }
  const Call call = params.hd == 1 ? one_column_call(params) : wide_call(params);
  const long long stride_c = static_cast<long long>(params.chunk_size) * params.hd;
  const float one = 1.0f;
  const int status = sgemm(handle, kPlain, kTransposed, call.m, call.n, call.k, &one, call.a,
                           call.lda, call.stride_a, call.b, call.ldb, call.stride_b, &one,
                           params.d_u, call.ldc, stride_c, params.num_parallel);
  if (status == 0) [[likely]]
    return {};
  return {status_text(status), status == kAllocFailed};
}

}  // namespace sdm
