#include "plancap/format/dtypes.h"

#include "plancap/base/error.h"

namespace sdm {

const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kBFloat16:
      return "bfloat16";
    case Dtype::kInt32:
      return "int32";
    case Dtype::kUint8:
      return "uint8";
    case Dtype::kInt64:
      return "int64";
    case Dtype::kFloat8E4M3:
      return "float8_e4m3fn";
    case Dtype::kFloat64:
      return "float64";
    case Dtype::kFloat16:
      return "float16";
  }
  return "unknown dtype";
}

uint32_t dtype_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kFloat8E4M3:
      return 1;
    case Dtype::kBFloat16:
    case Dtype::kFloat16:
      return 2;
    case Dtype::kFloat32:
    case Dtype::kInt32:
      return 4;
    case Dtype::kInt64:
    case Dtype::kFloat64:
      return 8;
  }
  return 0;
}

}  // namespace sdm
