#include "kernels/linear/bf16_linear/bf16_linear_maps.h"

#include "kernels/linear/bf16_linear/bf16_linear_pick.h"
#include "plancap/base/error.h"

#if defined(SDM_WITH_CUDA)
#include <cuda.h>

namespace sdm {

static_assert(sizeof(CUtensorMap) == sizeof(TensorMapBytes));
static_assert(alignof(CUtensorMap) <= alignof(TensorMapBytes));

// With the 128-byte swizzle that wgmma_layout.h describes.
void bf16_linear_encode_matrix(EncodeTensorMap encode, const char* where, const char* operand,
                               TensorMapBytes& map, const uint16_t* address, int64_t rows,
                               int64_t columns, int64_t row_stride, int32_t box_rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(row_stride) * 2};  // bytes
  const cuuint32_t box[2] = {kSwizzleColumns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t element_strides[2] = {1, 1};
  const auto function = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode);
  const CUresult result =
      function(reinterpret_cast<CUtensorMap*>(map.bytes), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
               const_cast<uint16_t*>(address), sizes, strides, box, element_strides,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return;
  throw Error(
      ErrorKind::kCuda,
      cat("[", where, "] ", operand, ": cuTensorMapEncodeTiled failed with error ",
          static_cast<int>(result), " for bfloat16 [", rows, ", ", columns, "], row stride ",
          row_stride, ", address ", reinterpret_cast<uintptr_t>(address)));
}

void bf16_linear_encode_maps(EncodeTensorMap encode, Bf16LinearParams& params) {
  // A plan's block comes from a file.
  SDM_EXPECT(params.tactic >= 0 && params.tactic < kNumBf16LinearTactics, kPlan, "bf16_linear",
             "tactic", cat("0..", kNumBf16LinearTactics - 1), params.tactic);
  const Bf16LinearTactic& tactic = kBf16LinearTactics[params.tactic];
  bf16_linear_encode_matrix(encode, "bf16_linear", "weight", params.weight_map, params.weight,
                            params.num_rows, params.depth, params.weight_stride, tactic.rows);
  bf16_linear_encode_matrix(encode, "bf16_linear", "x", params.x_map, params.x, params.num_tokens,
                            params.depth, params.x_stride, bf16_linear_token_slice(tactic));
}

}  // namespace sdm

#else  // a host-only build has no CUDA header

namespace sdm {

void bf16_linear_encode_matrix(EncodeTensorMap, const char* where, const char*, TensorMapBytes&,
                               const uint16_t*, int64_t, int64_t, int64_t, int32_t) {
  throw Error(ErrorKind::kCuda,
              cat("[", where, "] this build is host-only and makes no tensor maps"));
}

void bf16_linear_encode_maps(EncodeTensorMap, Bf16LinearParams&) {
  throw Error(ErrorKind::kCuda, "[bf16_linear] this build is host-only and makes no tensor maps");
}

}  // namespace sdm

#endif
