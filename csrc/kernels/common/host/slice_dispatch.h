// The host twins' row code comes in a few column counts: the common slice widths exactly, and two
// with room behind a narrower slice.
#pragma once
#include "kernels/common/math/host_device.h"
#include "kernels/common/math/ordered_math.h"

namespace sdm {

// Calls body.operator()<kColumns, kFull>() for rows of hd columns: every slice is exactly kColumns
// wide (kFull), or no wider. `body` is a lambda marked SDM_INLINE_LAMBDA, so that it is compiled
// for the instruction set of the caller.
template <typename Body>
SDM_HD void with_slice_columns(int32_t hd, Body body) {
  const int32_t width = slice_width(hd);
  const bool full = hd % width == 0;
  if (full && width == 128) {
    body.template operator()<128, true>();
  } else if (full && width == 96) {
    body.template operator()<96, true>();
  } else if (full && width == 64) {
    body.template operator()<64, true>();
  } else if (full && width == 32) {
    body.template operator()<32, true>();
  } else if (width > 64) {
    body.template operator()<128, false>();
  } else {
    body.template operator()<64, false>();
  }
}

}  // namespace sdm
