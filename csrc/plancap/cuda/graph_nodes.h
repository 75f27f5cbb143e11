// Launches as nodes of a CUDA graph, and the edges that keep them in order.
#pragma once
#include <vector>

#include "plancap/cuda/launch_walk.h"

namespace sdm::plancap::cuda {

// Adds a launch to the graph, without edges. Throws kCuda naming its step, plan and kernel.
CUgraphNode add_kernel(CUgraph graph, const Chain& chain, const WalkedLaunch& launch);

// Puts the launch, with other parameters, in an instantiated graph's node of the same kernel.
// Launches of the graph that are under way are not affected. Throws as add_kernel.
void update_kernel(CUgraphExec exec, CUgraphNode node, const Chain& chain,
                   const WalkedLaunch& launch);

// Destroys what is not null, also while somebody captures: an object goes with its last reference,
// whenever that is. Never throws: a driver that refuses here has reported its error elsewhere.
void destroy_graph(CUgraph graph, CUgraphExec exec) noexcept;

// The edges of a graph; the driver takes a batch of them in one call, all of one kind.
class GraphEdges {
 public:
  GraphEdges();

  // `after` runs behind `before`: it may start early, or when `before` has ended.
  void add(CUgraphNode before, CUgraphNode after, bool programmatic);

  size_t programmatic() const { return programmatic_.from.size(); }

  // Adds them to the graph. Throws kCuda.
  void issue(CUgraph graph) const;

 private:
  struct Batch {
    CUgraphEdgeData kind{};
    std::vector<CUgraphNode> from;
    std::vector<CUgraphNode> to;
  };
  static void issue(const Batch& batch, CUgraph graph);

  Batch full_;
  Batch programmatic_;
};

}  // namespace sdm::plancap::cuda
