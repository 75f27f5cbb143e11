// The CPU's stand-in for kernels/common/ptx/cluster.cuh: blocks run one after the other, so every
// cluster is of one block, which has nobody to wait for.
#pragma once
#include <cstdint>
#include <stdexcept>

namespace sdm {

inline void cluster_arrive() {}
inline void cluster_arrive_relaxed() {}
inline void cluster_wait() {}

inline void cluster_store(float*, uint32_t, float) {
  throw std::runtime_error("emulation: a store into another block's memory");
}

}  // namespace sdm
