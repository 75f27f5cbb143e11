#include "plancap/cuda/instruments.h"

#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <string>

#include "plancap/base/error.h"

namespace sdm::plancap::cuda {
namespace {

std::atomic<bool> ranges{false};
std::atomic<bool> counting{false};
std::atomic<uint64_t> counted{0};

std::string range_name(const Chain& chain) {
  std::string name = cat("sdm chain, ", chain.steps(), " steps:");
  for (const auto& bound : chain.plans()) name.append(" ").append(bound->plan().kernel_name());
  return name;
}

}  // namespace

void enable_ranges(bool on) { ranges.store(on, std::memory_order_relaxed); }

void enable_counter(bool on) { counting.store(on, std::memory_order_relaxed); }

uint64_t counted_launches() { return counted.load(std::memory_order_relaxed); }

void count_launches(uint64_t launches) {
  if (counting.load(std::memory_order_relaxed)) {
    counted.fetch_add(launches, std::memory_order_relaxed);
  }
}

Range::Range(const Chain& chain) : open_(ranges.load(std::memory_order_relaxed)) {
  if (open_) nvtxRangePushA(range_name(chain).c_str());
}

Range::~Range() {
  if (open_) nvtxRangePop();
}

}  // namespace sdm::plancap::cuda
