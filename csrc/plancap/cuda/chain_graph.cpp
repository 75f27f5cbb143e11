#include "plancap/cuda/chain_graph.h"

#include <algorithm>

#include "plancap/cuda/check.h"
#include "plancap/cuda/executor.h"
#include "plancap/cuda/graph_nodes.h"
#include "plancap/cuda/instruments.h"

namespace sdm::plancap::cuda {
namespace {

// Captures a library call into the graph, behind `before`; its last nodes. The library may launch
// any number of kernels.
std::vector<CUgraphNode> add_library_call(CUgraph graph, const Chain& chain,
                                          const WalkedLaunch& launch, const LibraryCapture& library,
                                          const std::vector<CUgraphNode>& before) {
  const Driver& cuda = driver();
  const std::string place = launch_place(chain, launch.step, launch.plan);
  check(cuda.begin_capture_to_graph(library.stream, graph, before.data(), nullptr, before.size(),
                                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "cuStreamBeginCaptureToGraph", place);
  const LibraryFailure failure =
      launch.bound->plan().kernel().library(launch.params, library.handle);
  CUstreamCaptureStatus status{};
  const CUgraphNode* last = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  const CUresult info =
      cuda.capture_info(library.stream, &status, nullptr, nullptr, &last, &edges, &count);
  std::vector<CUgraphNode> nodes(last, last + (info == CUDA_SUCCESS ? count : 0));
  CUgraph captured = nullptr;
  const CUresult end = cuda.end_capture(library.stream, &captured);
  if (failure) throw Error(failure.kind(), cat(place, failure.text));
  check(info, "cuStreamGetCaptureInfo", place);
  check(end, "cuStreamEndCapture", place);
  return nodes;
}

void expect_same_plans(const Chain& present, const Chain& given) {
  bool same = present.steps() == given.steps() && present.order() == given.order() &&
              present.plans().size() == given.plans().size() && present.device() == given.device();
  for (size_t i = 0; same && i < present.plans().size(); ++i) {
    same = std::ranges::equal(present.plans()[i]->plan().bytes(), given.plans()[i]->plan().bytes());
  }
  if (!same) throw Error(ErrorKind::kPlan, "chain graph rebind: expected the graph's own plans");
}

}  // namespace

ChainGraph::ChainGraph(std::shared_ptr<const Chain> chain, const LibraryCapture& library)
    : chain_(std::move(chain)), device_(*prepared(*chain_->plans().front()).device) {
  try {
    build(library);
  } catch (...) {
    destroy();
    throw;
  }
}

ChainGraph::~ChainGraph() { destroy(); }

void ChainGraph::build(const LibraryCapture& library) {
  SDM_EXPECT((library.handle && library.done) || !chain_->has_library_step(), kValue, "chain graph",
             "library", "a cuBLAS handle, a stream to capture its calls on and an event", "none");
  done_ = library.done;
  const ContextGuard context(device_);
  const RelaxedCapture relaxed;  // making a graph is not for captures elsewhere to forbid
  check(driver().graph_create(&graph_, 0), "cuGraphCreate", "chain graph: ");
  GraphEdges edges;
  std::vector<CUgraphNode> last;
  LaunchWalk(*chain_).visit(0, chain_->steps(), [&](const WalkedLaunch& launch) {
    if (!launch.prepared->kernel) {
      last = add_library_call(graph_, *chain_, launch, library, last);
      return;
    }
    const CUgraphNode node = add_kernel(graph_, *chain_, launch);
    for (const CUgraphNode before : last) edges.add(before, node, launch.programmatic);
    last = {node};
    nodes_.push_back(node);
  });
  edges.issue(graph_);
  programmatic_edges_ = edges.programmatic();
  instantiate();
}

void ChainGraph::instantiate() {
  check(driver().graph_instantiate(&exec_, graph_, 0), "cuGraphInstantiateWithFlags",
        "chain graph of ", nodes_.size(), " kernel nodes: ");
  whole_ = true;
}

void ChainGraph::destroy() {
  destroy_graph(graph_, exec_);
  exec_ = nullptr;
  graph_ = nullptr;
  nodes_.clear();
  programmatic_edges_ = 0;
  whole_ = false;
}

CUgraph ChainGraph::handle() const {
  const std::lock_guard lock(mutex_);
  return graph_;
}

size_t ChainGraph::nodes() const {
  const std::lock_guard lock(mutex_);
  return nodes_.size();
}

size_t ChainGraph::programmatic_edges() const {
  const std::lock_guard lock(mutex_);
  return programmatic_edges_;
}

void ChainGraph::replay(CUstream stream) const {
  const std::lock_guard lock(mutex_);
  if (!whole_) throw Error(ErrorKind::kCuda, "chain graph: a rebind failed: make the graph anew");
  const ContextGuard context(device_);
  const RelaxedCapture relaxed;  // as for build(): other streams' captures are not touched
  expect_stream(*chain_, stream);
  const Range range(*chain_);
  launch(stream);
  count_launches(1);
}

void ChainGraph::launch(CUstream stream) const {
  const Driver& cuda = driver();
  const char* where = "chain graph: ";
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (done_) check(cuda.stream_capturing(stream, &status), "cuStreamIsCapturing", where);
  // A capture orders its own work, and cannot wait for other work.
  const bool in_turn = done_ && status == CU_STREAM_CAPTURE_STATUS_NONE;
  if (in_turn) check(cuda.stream_wait_event(stream, done_, 0), "cuStreamWaitEvent", where);
  check(cuda.graph_launch(exec_, stream), "cuGraphLaunch", where);
  if (in_turn) check(cuda.event_record(done_, stream), "cuEventRecord", where);
}

void ChainGraph::rebind(std::shared_ptr<const Chain> chain, const LibraryCapture& library) {
  const std::lock_guard lock(mutex_);
  expect_same_plans(*chain_, *chain);
  const ContextGuard context(device_);
  const RelaxedCapture relaxed;
  whole_ = false;
  const bool same_edges = chain_->early_starts() == chain->early_starts();
  chain_ = std::move(chain);
  if (chain_->has_library_step() || !same_edges) {
    destroy();
    return build(library);
  }
  size_t next = 0;
  LaunchWalk(*chain_).visit(0, chain_->steps(), [&](const WalkedLaunch& launch) {
    update_kernel(exec_, nodes_[next++], *chain_, launch);
  });
  whole_ = true;
}

}  // namespace sdm::plancap::cuda
