// NVTX ranges around runs and a count of launches: off by default, one flag test a run when off.
#pragma once
#include <cstdint>

#include "plancap/run/chain.h"

namespace sdm::plancap::cuda {

void enable_ranges(bool on);
void enable_counter(bool on);

// Launches issued while the counter was on, by all threads.
uint64_t counted_launches();
void count_launches(uint64_t launches);

// An NVTX range named after the chain while it lives.
class Range {
 public:
  explicit Range(const Chain& chain);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  bool open_ = false;
};

}  // namespace sdm::plancap::cuda
