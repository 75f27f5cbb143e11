// A stand-in for the BLAS: its handle is the address of a stream's address.
#include <cstdio>

extern "C" {

void fake_library_launch(void* stream, const char* name, const char* detail);

static int next_status = 0;
void fake_cublas_status(int status) { next_status = status; }

int cublasSgemmStridedBatched(void* handle, int op_a, int op_b, int m, int n, int k,
                              const float* alpha, const float* a, int lda, long long stride_a,
                              const float* b, int ldb, long long stride_b, const float* beta,
                              float* c, int ldc, long long stride_c, int batch) {
  if (next_status) return next_status;
  char detail[512];
  snprintf(detail, sizeof(detail), "%d %d %d %d %d %g %p %d %lld %p %d %lld %g %p %d %lld %d", op_a,
           op_b, m, n, k, *alpha, static_cast<const void*>(a), lda, stride_a,
           static_cast<const void*>(b), ldb, stride_b, *beta, static_cast<void*>(c), ldc, stride_c,
           batch);
  fake_library_launch(*static_cast<void**>(handle), "cublasSgemmStridedBatched", detail);
  return 0;
}
}
