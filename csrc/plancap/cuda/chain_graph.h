// A chain as a CUDA graph, built from its plans: every launch of every step is a node, so that one
// call replays them all.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "plancap/cuda/device.h"
#include "plancap/run/chain.h"

namespace sdm::plancap::cuda {

// What a library step needs. While the graph is built, a private stream to capture its call on, and
// the library's handle, set to that stream. For every replay, an event that stands behind the work
// which uses the handle's memory for that stream: replays wait for it and put it behind themselves.
// Null without library steps.
struct LibraryCapture {
  CUstream stream = nullptr;
  void* handle = nullptr;
  CUevent done = nullptr;
};

// Threads may use one at once: a replay uses one binding or the other, and a rebind waits for the
// replays that are being launched, not for those that run.
class ChainGraph {
 public:
  // Throws kCuda naming the step and plan of a node that the driver refuses.
  ChainGraph(std::shared_ptr<const Chain> chain, const LibraryCapture& library);
  ~ChainGraph();
  ChainGraph(const ChainGraph&) = delete;
  ChainGraph& operator=(const ChainGraph&) = delete;

  // Launches the graph on a stream of the chain's device.
  void replay(CUstream stream) const;

  // Puts the same plans, bound to other operands, in place of the present ones; replays that are
  // under way are not affected. Kernel nodes are updated where they are; with library steps, or
  // where other launches may start early, the graph is built anew. Throws kPlan for other plans.
  // When the driver refuses an update, replay() refuses from then on: the nodes belong to two
  // bindings.
  void rebind(std::shared_ptr<const Chain> chain, const LibraryCapture& library);

  CUgraph handle() const;
  size_t nodes() const;
  size_t programmatic_edges() const;

 private:
  void build(const LibraryCapture& library);
  void instantiate();
  void launch(CUstream stream) const;
  void destroy();

  mutable std::mutex mutex_;  // of all that follows; the driver's calls on one exec, too
  std::shared_ptr<const Chain> chain_;
  const DeviceInfo& device_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::vector<CUgraphNode> nodes_;  // of kernel launches, in the order of a run
  size_t programmatic_edges_ = 0;
  CUevent done_ = nullptr;  // of the LibraryCapture
  bool whole_ = false;      // every node belongs to chain_
};

}  // namespace sdm::plancap::cuda
