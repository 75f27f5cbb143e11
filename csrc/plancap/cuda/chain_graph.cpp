#include "plancap/cuda/chain_graph.h"

#include <algorithm>

#include "plancap/cuda/check.h"
#include "plancap/cuda/executor.h"
#include "plancap/cuda/instruments.h"
#include "plancap/cuda/launch_walk.h"

namespace sdm::plancap::cuda {
namespace {

CUDA_KERNEL_NODE_PARAMS node_params(const WalkedLaunch& launch, void** arguments) {
  const LaunchConfig& config = launch.prepared->config;
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = launch.prepared->kernel->function;
  params.gridDimX = config.grid.x;
  params.gridDimY = config.grid.y;
  params.gridDimZ = config.grid.z;
  params.blockDimX = config.block.x;
  params.blockDimY = config.block.y;
  params.blockDimZ = config.block.z;
  params.sharedMemBytes = config.shared_bytes;
  params.kernelParams = arguments;
  return params;
}

// Edges of one kind: the driver takes a batch of them in one call, all of one type.
struct EdgeBatch {
  CUgraphEdgeData kind{};
  std::vector<CUgraphNode> from;
  std::vector<CUgraphNode> to;

  void add(CUgraphNode before, CUgraphNode after) {
    from.push_back(before);
    to.push_back(after);
  }

  void issue(CUgraph graph) const {
    if (from.empty()) return;
    const std::vector<CUgraphEdgeData> data(from.size(), kind);
    check(driver().graph_add_dependencies(graph, from.data(), to.data(), data.data(), from.size()),
          "cuGraphAddDependencies", "chain graph: ");
  }
};

EdgeBatch programmatic_batch() {
  EdgeBatch batch;
  batch.kind.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  batch.kind.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  return batch;
}

CUgraphNode add_kernel(CUgraph graph, const Chain& chain, const WalkedLaunch& launch) {
  void* arguments[] = {launch.params};
  const CUDA_KERNEL_NODE_PARAMS params = node_params(launch, arguments);
  CUgraphNode node = nullptr;
  check(driver().graph_add_kernel(&node, graph, nullptr, 0, &params), "cuGraphAddKernelNode",
        launch_place(chain, launch.step, launch.plan));
  for (uint32_t i = 0; i < launch.prepared->num_attributes; ++i) {
    const CUlaunchAttribute& attribute = launch.prepared->attributes[i];
    // In a graph an early start is a kind of edge, not an attribute of the node.
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) continue;
    check(driver().graph_set_attribute(node, attribute.id, &attribute.value),
          "cuGraphKernelNodeSetAttribute", launch_place(chain, launch.step, launch.plan));
  }
  return node;
}

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
  const char* failure = launch.bound->plan().kernel().library(launch.params, library.handle);
  CUstreamCaptureStatus status{};
  const CUgraphNode* last = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  const CUresult info =
      cuda.capture_info(library.stream, &status, nullptr, nullptr, &last, &edges, &count);
  std::vector<CUgraphNode> nodes(last, last + (info == CUDA_SUCCESS ? count : 0));
  CUgraph captured = nullptr;
  const CUresult end = cuda.end_capture(library.stream, &captured);
  if (failure) throw Error(ErrorKind::kCuda, cat(place, failure));
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
    : chain_(std::move(chain)), device_(*chain_->plans().front()->prepared()->device) {
  try {
    build(library);
  } catch (...) {
    destroy();
    throw;
  }
}

ChainGraph::~ChainGraph() { destroy(); }

void ChainGraph::build(const LibraryCapture& library) {
  SDM_EXPECT(library.handle || !chain_->has_library_step(), kValue, "chain graph", "library",
             "a cuBLAS handle and a stream to capture its calls on", "none");
  const ContextGuard context(device_);
  check(driver().graph_create(&graph_, 0), "cuGraphCreate", "chain graph: ");
  EdgeBatch full, programmatic = programmatic_batch();
  std::vector<CUgraphNode> last;
  walk_launches(*chain_, [&](const WalkedLaunch& launch) {
    if (!launch.prepared->kernel) {
      // The nodes so far need their edges before more are captured behind them.
      last = add_library_call(graph_, *chain_, launch, library, last);
      return;
    }
    const CUgraphNode node = add_kernel(graph_, *chain_, launch);
    for (const CUgraphNode before : last)
      (launch.programmatic ? programmatic : full).add(before, node);
    last = {node};
    nodes_.push_back(node);
  });
  full.issue(graph_);
  programmatic.issue(graph_);
  programmatic_edges_ = programmatic.from.size();
  instantiate();
}

void ChainGraph::instantiate() {
  check(driver().graph_instantiate(&exec_, graph_, 0), "cuGraphInstantiateWithFlags",
        "chain graph of ", nodes_.size(), " kernel nodes: ");
  whole_ = true;
}

// Cleanup never throws: a driver that refuses here has reported its error elsewhere already.
void ChainGraph::destroy() {
  if (exec_) driver().graph_exec_destroy(exec_);
  if (graph_) driver().graph_destroy(graph_);
  exec_ = nullptr;
  graph_ = nullptr;
  nodes_.clear();
  programmatic_edges_ = 0;
  whole_ = false;
}

void ChainGraph::replay(CUstream stream) const {
  if (!whole_) throw Error(ErrorKind::kCuda, "chain graph: a rebind failed: make the graph anew");
  const ContextGuard context(device_);
  expect_stream(*chain_, stream);
  const Range range(*chain_);
  check(driver().graph_launch(exec_, stream), "cuGraphLaunch", "chain graph: ");
  count_launches(1);
}

void ChainGraph::rebind(std::shared_ptr<const Chain> chain, const LibraryCapture& library) {
  expect_same_plans(*chain_, *chain);
  const ContextGuard context(device_);
  whole_ = false;
  chain_ = std::move(chain);
  if (chain_->has_library_step()) {
    destroy();
    return build(library);
  }
  size_t next = 0;
  walk_launches(*chain_, [&](const WalkedLaunch& launch) {
    void* arguments[] = {launch.params};
    const CUDA_KERNEL_NODE_PARAMS params = node_params(launch, arguments);
    check(driver().graph_exec_set_kernel(exec_, nodes_[next++], &params),
          "cuGraphExecKernelNodeSetParams", launch_place(*chain_, launch.step, launch.plan));
  });
  whole_ = true;
}

}  // namespace sdm::plancap::cuda
