// What a token takes of the bank rows that it names.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

// One write or read of a token: 8 bytes.
struct alignas(8) RowWeight {
  int32_t row;  // absolute bank row; -1: a row of zeros
  float weight;
};
static_assert(sizeof(RowWeight) == 8);

}  // namespace sdm
