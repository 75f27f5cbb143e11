// A kernel whose parameter block has everything that once gave wrong offsets elsewhere: a 2-byte
// scalar, a 12-byte struct, a byte before a pointer.
#pragma once
#include "plancap/capture/sink.h"

namespace sdm::testing {

struct Triple {
  int32_t a, b, c;
};

struct OddLayoutParams {
  int16_t small;
  Triple triple;
  uint8_t byte;
  double* out;  // [steps, kOddValues]
  float scale;
  int16_t tail;
  int64_t wide;
  int32_t step;
  uint16_t last;
};

// small, triple.a, triple.b, triple.c, byte, scale, tail, wide, last.
inline constexpr int64_t kOddValues = 9;

struct OddLayoutArgs {
  TensorRef out;           // float64 [steps, kOddValues]
  OddLayoutParams values;  // its scalars are recorded as they are
  int64_t steps = 1;
};

// Step ti writes every scalar of the block into row ti.
void odd_layout(plancap::Sink& sink, const OddLayoutArgs& args);

const plancap::KernelInfo& odd_layout_info();

}  // namespace sdm::testing
