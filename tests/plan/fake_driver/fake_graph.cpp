// Launches and graphs.
#include <algorithm>
#include <chrono>
#include <thread>

#include "fake_state.h"

using fake::Edge;
using fake::Graph;
using fake::Kernel;
using fake::Launch;
using fake::Node;
using fake::Stream;

namespace {

// An instantiated graph: the nodes in an order that its edges allow, each with its own launch.
struct Exec {
  std::vector<std::pair<Node*, Launch>> nodes;
  std::atomic<int> calls{0};  // under way
};

// A call on an instantiated graph: the driver leaves it to the caller that there is one at a time.
class ExecCall {
 public:
  explicit ExecCall(Exec& exec) : exec_(exec) {
    if (exec_.calls++ > 0) ++fake::state().overlapping;
    if (!fake::relaxed()) ++fake::state().unrelaxed;
    const int us = fake::state().exec_call_us;
    if (us) std::this_thread::sleep_for(std::chrono::microseconds(us));
  }
  ~ExecCall() { --exec_.calls; }

 private:
  Exec& exec_;
};

std::string attribute_text(const CUlaunchAttribute& attribute) {
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
    const auto& dim = attribute.value.clusterDim;
    return "[" + std::to_string(dim.x) + "," + std::to_string(dim.y) + "," + std::to_string(dim.z) +
           "]";
  }
  return std::to_string(attribute.value.programmaticStreamSerializationAllowed);
}

int device_of(CUstream stream) {
  return fake::is_special(stream) ? fake::context_stack().back()->device
                                  : reinterpret_cast<Stream*>(stream)->context->device;
}

template <typename Params>
Launch launch_of(const Params& params, CUfunction function) {
  return fake::make_launch(function, {params.gridDimX, params.gridDimY, params.gridDimZ},
                           {params.blockDimX, params.blockDimY, params.blockDimZ},
                           params.sharedMemBytes, params.kernelParams);
}

std::vector<Node*> ordered(const Graph& graph) {
  std::map<Node*, int> waiting;
  for (const Edge& edge : graph.edges) ++waiting[edge.to];
  std::vector<Node*> ready, order;
  for (const auto& node : graph.nodes) {
    if (!waiting[node.get()]) ready.push_back(node.get());
  }
  while (!ready.empty()) {
    Node* node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const Edge& edge : graph.edges) {
      if (edge.from == node && --waiting[edge.to] == 0) ready.push_back(edge.to);
    }
  }
  return order;
}

}  // namespace

extern "C" {

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void**) {
  FAKE_CALL(cuLaunchKernelEx);
  if (fake::context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto& kernel = *reinterpret_cast<const Kernel*>(function);
  Launch launch = fake::make_launch(
      function, {config->gridDimX, config->gridDimY, config->gridDimZ},
      {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, params);
  const auto allowed = kernel.attributes.find(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  const int most = allowed == kernel.attributes.end() ? 48 * 1024 : allowed->second;
  if (!launch.grid[0] || launch.shared > static_cast<unsigned>(most)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    launch.attributes[config->attrs[i].id] = attribute_text(config->attrs[i]);
  }
  fake::log("{\"call\":\"launch\",\"device\":" + std::to_string(device_of(config->hStream)) + "," +
            fake::json_of(launch) + "}");
  return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  FAKE_CALL(cuGraphCreate);
  *graph = reinterpret_cast<CUgraph>(new Graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Graph*>(graph);
  fake::log("{\"call\":\"graph_destroy\"}");
  return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                                 const CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_CALL(cuGraphAddKernelNode);
  auto& nodes = reinterpret_cast<Graph*>(graph)->nodes;
  nodes.push_back(std::make_unique<Node>(Node{launch_of(*params, params->func)}));
  *node = reinterpret_cast<CUgraphNode>(nodes.back().get());
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID which,
                                       const CUkernelNodeAttrValue* value) {
  CUlaunchAttribute attribute{};
  attribute.id = which;
  attribute.value = *value;
  reinterpret_cast<Node*>(node)->launch.attributes[which] = attribute_text(attribute);
  return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
  FAKE_CALL(cuGraphAddDependencies);
  for (size_t i = 0; i < count; ++i) {
    if (data[i].type != data[0].type) return CUDA_ERROR_INVALID_VALUE;  // a mixed batch
    reinterpret_cast<Graph*>(graph)->edges.push_back({reinterpret_cast<Node*>(from[i]),
                                                      reinterpret_cast<Node*>(to[i]), data[i].type,
                                                      data[i].from_port});
  }
  fake::log("{\"call\":\"edges\",\"count\":" + std::to_string(count) + ",\"type\":" +
            std::to_string(data[0].type) + ",\"port\":" + std::to_string(data[0].from_port) + "}");
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  FAKE_CALL(cuGraphInstantiateWithFlags);
  auto* made = new Exec;
  for (Node* node : ordered(*reinterpret_cast<Graph*>(graph))) {
    made->nodes.emplace_back(node, node->launch);
  }
  *exec = reinterpret_cast<CUgraphExec>(made);
  fake::log("{\"call\":\"instantiate\",\"relaxed\":" +
            std::string(fake::relaxed() ? "true" : "false") + "}");
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec, CUstream) {
  FAKE_CALL(cuGraphUpload);
  fake::log("{\"call\":\"upload\"}");
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_CALL(cuGraphExecKernelNodeSetParams);
  const ExecCall call(*reinterpret_cast<Exec*>(exec));
  auto& nodes = reinterpret_cast<Exec*>(exec)->nodes;
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const auto& held) {
    return held.first == reinterpret_cast<Node*>(node);
  });
  if (found == nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto attributes = found->second.attributes;
  found->second = launch_of(*params, params->func);
  found->second.attributes = attributes;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  {
    const ExecCall call(*reinterpret_cast<Exec*>(exec));
  }
  delete reinterpret_cast<Exec*>(exec);
  fake::log("{\"call\":\"exec_destroy\",\"relaxed\":" +
            std::string(fake::relaxed() ? "true" : "false") + "}");
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  FAKE_CALL(cuGraphLaunch);
  const ExecCall call(*reinterpret_cast<Exec*>(exec));
  for (const auto& [node, launch] : reinterpret_cast<Exec*>(exec)->nodes) {
    fake::log("{\"call\":\"node\",\"device\":" + std::to_string(device_of(stream)) + "," +
              fake::json_of(launch) + "}");
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_CALL(cuStreamIsCapturing);
  const bool capturing = !fake::is_special(stream) && reinterpret_cast<Stream*>(stream)->capture;
  *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_CALL(cuEventCreate);
  *event = reinterpret_cast<CUevent>(new char);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent, CUstream) {
  FAKE_CALL(cuEventRecord);
  fake::log("{\"call\":\"mark\"}");
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) {
  FAKE_CALL(cuStreamWaitEvent);
  fake::log("{\"call\":\"wait\"}");
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent) {
  FAKE_CALL(cuEventQuery);
  return fake::state().busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  delete reinterpret_cast<char*>(event);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* after,
                                     const CUgraphEdgeData*, size_t count, CUstreamCaptureMode) {
  FAKE_CALL(cuStreamBeginCaptureToGraph);
  auto& self = *reinterpret_cast<Stream*>(stream);
  self.capture = reinterpret_cast<Graph*>(graph);
  self.last.clear();
  for (size_t i = 0; i < count; ++i) self.last.push_back(reinterpret_cast<Node*>(after[i]));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode** last, const CUgraphEdgeData**,
                                   size_t* count) {
  auto& self = *reinterpret_cast<Stream*>(stream);
  *status = self.capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  *last = reinterpret_cast<const CUgraphNode*>(self.last.data());
  *count = self.last.size();
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  auto& self = *reinterpret_cast<Stream*>(stream);
  *graph = reinterpret_cast<CUgraph>(self.capture);
  self.capture = nullptr;
  return CUDA_SUCCESS;
}

// A library's launch: a node while the stream is capturing, logged otherwise.
void fake_library_launch(void* stream, const char* name, const char* detail) {
  Launch launch{};
  launch.entry = name;
  launch.params = detail;
  auto& self = *static_cast<Stream*>(stream);
  if (!self.capture) {
    fake::log("{\"call\":\"launch\",\"device\":" + std::to_string(self.context->device) + "," +
              fake::json_of(launch) + "}");
    return;
  }
  self.capture->nodes.push_back(std::make_unique<Node>(Node{launch}));
  Node* node = self.capture->nodes.back().get();
  for (Node* before : self.last) self.capture->edges.push_back({before, node, 0, 0});
  self.last = {node};
}
}
