// A kernel that shows every kind of patch at work: its pointer walks over an operand.
#pragma once
#include "plancap/capture/sink.h"

namespace sdm::testing {

struct WalkParams {
  float* out;     // moved by a pointer patch
  int64_t value;  // an int64 patch
  int32_t first;  // an int32 patch: the first element written
  int32_t count;
  int32_t add;  // 1: add the value, in one piece, instead of writing it
  int32_t reserved;
};

// value(ti) = clamp(base + ti * stride, lowest, highest).
struct Line {
  int64_t base = 0, stride = 0, lowest = 0, highest = 0;
};

struct WalkArgs {
  TensorRef out;  // float32 [elements]
  Line bytes;     // of the pointer
  Line value;
  Line first;
  int64_t count = 1;
  int64_t steps = 1;
  bool add = false;
  bool empty = false;  // an empty grid: nothing is to be written
};

// Step ti writes `value` (or adds it) into out[first .. first + count) of where the pointer stands.
void walk(plancap::Sink& sink, const WalkArgs& args);

const plancap::KernelInfo& walk_info();

}  // namespace sdm::testing
