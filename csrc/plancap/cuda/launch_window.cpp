#include "plancap/cuda/launch_window.h"

#include <algorithm>

#include "plancap/cuda/check.h"
#include "plancap/cuda/graph_nodes.h"

namespace sdm::plancap::cuda {
namespace {

// Nodes of a window. From 32 on the host's time a launch hardly falls, and the first launch of a
// window waits for all of its nodes to be updated (tools/bench/host_launch.py).
constexpr int64_t kNodes = 64;
// A window takes about as long to make as it gains in this many launches.
constexpr uint64_t kLeastLaunches = 4 * kNodes;

}  // namespace

int64_t LaunchWindow::steps_for(const Chain& chain) {
  const auto per_step = static_cast<int64_t>(chain.launches_per_step());
  return std::clamp<int64_t>(kNodes / std::max<int64_t>(per_step, 1), 1, chain.steps());
}

LaunchWindow::LaunchWindow(const Chain& chain, CUstream stream) : steps_(steps_for(chain)) {
  try {
    build(chain, stream);
  } catch (...) {
    destroy();
    throw;
  }
}

LaunchWindow::~LaunchWindow() { destroy(); }

bool LaunchWindow::suits(const Chain& chain) {
  return !chain.has_library_step() && chain.launches() >= kLeastLaunches;
}

void LaunchWindow::build(const Chain& chain, CUstream stream) {
  const Driver& cuda = driver();
  for (const auto& bound : chain.plans()) kernels_.push_back(bound->prepared());
  check(cuda.event_create(&mark_, CU_EVENT_DISABLE_TIMING), "cuEventCreate", "chain window: ");
  check(cuda.graph_create(&graph_, 0), "cuGraphCreate", "chain window: ");
  GraphEdges edges;
  LaunchWalk(chain).visit(0, steps_, [&](const WalkedLaunch& launch) {
    const CUgraphNode node = add_kernel(graph_, chain, launch);
    if (!nodes_.empty()) edges.add(nodes_.back(), node, launch.programmatic);
    nodes_.push_back(node);
  });
  edges.issue(graph_);
  check(cuda.graph_instantiate(&exec_, graph_, 0), "cuGraphInstantiateWithFlags", "chain window: ");
  check(cuda.graph_upload(exec_, stream), "cuGraphUpload", "chain window: ");
}

void LaunchWindow::destroy() {
  destroy_graph(graph_, exec_);
  if (mark_) driver().event_destroy(mark_);
}

void LaunchWindow::launch(LaunchWalk& walk, const Chain& chain, int64_t first, CUstream stream) {
  const int64_t end = first + steps_;
  size_t next = 0;
  walk.visit(first, end, [&](const WalkedLaunch& launch) {
    update_kernel(exec_, nodes_[next++], chain, launch);
  });
  const CUresult result = driver().graph_launch(exec_, stream);
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  check(result, "cuGraphLaunch", "chain: steps ", chain.step_at(first), " to ",
        chain.step_at(end - 1), ": ");
}

void LaunchWindow::mark(CUstream stream) {
  check(driver().event_record(mark_, stream), "cuEventRecord", "chain: ");
}

bool LaunchWindow::passed_mark() const {
  const CUresult result = driver().event_query(mark_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "cuEventQuery", "chain: a launch before: ");
  return true;
}

SharedWindow::Holder SharedWindow::try_hold(const Chain& chain, CUstream stream) {
  Holder holder;
  holder.lock_ = std::unique_lock(mutex_, std::try_to_lock);
  if (!holder.lock_.owns_lock()) return holder;
  const bool worth_it = ran_ && !failed_;
  ran_ = true;
  if (!worth_it) return holder;
  try {
    fill(holder, chain, stream);
  } catch (const Error& error) {
    if (!is_driver_failure(error)) throw;
    give_up(holder);
  }
  return holder;
}

SharedWindow::Holder SharedWindow::hold(const Chain& chain, CUstream stream) {
  Holder holder;
  holder.lock_ = std::unique_lock(mutex_);
  fill(holder, chain, stream);
  ran_ = true;
  return holder;
}

void SharedWindow::give_up(Holder& holder) {
  window_.reset();
  holder.window_ = nullptr;
  failed_ = true;
}

void SharedWindow::fill(Holder& holder, const Chain& chain, CUstream stream) {
  if (!window_ || window_->steps() != LaunchWindow::steps_for(chain)) {
    window_.reset();
    window_ = std::make_unique<LaunchWindow>(chain, stream);
  }
  holder.window_ = window_.get();
}

}  // namespace sdm::plancap::cuda
