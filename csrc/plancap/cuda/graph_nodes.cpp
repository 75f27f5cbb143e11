#include "plancap/cuda/graph_nodes.h"

#include "plancap/cuda/check.h"

namespace sdm::plancap::cuda {
namespace {

// `arguments` holds the address of the parameter block and must live as long.
CUDA_KERNEL_NODE_PARAMS node_params(const WalkedLaunch& launch, void** arguments) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = launch.prepared->kernel->function;
  put_sizes(launch.prepared->config, params);
  params.kernelParams = arguments;
  return params;
}

}  // namespace

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

void update_kernel(CUgraphExec exec, CUgraphNode node, const Chain& chain,
                   const WalkedLaunch& launch) {
  void* arguments[] = {launch.params};
  const CUDA_KERNEL_NODE_PARAMS params = node_params(launch, arguments);
  const CUresult result = driver().graph_exec_set_kernel(exec, node, &params);
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  check(result, "cuGraphExecKernelNodeSetParams", launch_place(chain, launch.step, launch.plan));
}

void destroy_graph(CUgraph graph, CUgraphExec exec) noexcept {
  if (!graph && !exec) return;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool relaxed = driver().exchange_capture_mode(&mode) == CUDA_SUCCESS;
  if (exec) driver().graph_exec_destroy(exec);
  if (graph) driver().graph_destroy(graph);
  if (relaxed) driver().exchange_capture_mode(&mode);
}

GraphEdges::GraphEdges() {
  programmatic_.kind.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  programmatic_.kind.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
}

void GraphEdges::add(CUgraphNode before, CUgraphNode after, bool programmatic) {
  Batch& batch = programmatic ? programmatic_ : full_;
  batch.from.push_back(before);
  batch.to.push_back(after);
}

void GraphEdges::issue(CUgraph graph) const {
  issue(full_, graph);
  issue(programmatic_, graph);
}

void GraphEdges::issue(const Batch& batch, CUgraph graph) {
  if (batch.from.empty()) return;
  const std::vector<CUgraphEdgeData> data(batch.from.size(), batch.kind);
  check(driver().graph_add_dependencies(graph, batch.from.data(), batch.to.data(), data.data(),
                                        data.size()),
        "cuGraphAddDependencies", "chain graph: ");
}

}  // namespace sdm::plancap::cuda
