// Column slices of a row (docs/step_chain.md, section 4).
#pragma once
#include "kernels/common/math/ordered_math.h"

namespace sdm {

struct ColumnSlice {
  int32_t first;  // column
  int32_t width;  // columns, at most 128; only the row's last slice may not be a multiple of 4
};

SDM_HD ColumnSlice column_slice(int32_t hd, int32_t slice) {
  const int32_t width = slice_width(hd);
  const int32_t first = slice * width;
  return {first, hd - first < width ? hd - first : width};
}

}  // namespace sdm
