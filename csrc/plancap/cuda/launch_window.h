// A few steps of a chain as one small graph, used again for every next few steps.
//
// Issuing a launch costs the host 2.4 to 3.6 us, which is more than short kernels run. Putting
// other parameters into a node of an instantiated graph costs it a seventh of that, and one call
// then launches all nodes, which are as many and in the same order as the launches they stand for.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "plancap/cuda/device.h"
#include "plancap/cuda/launch_walk.h"
#include "plancap/run/chain.h"

namespace sdm::plancap::cuda {

class LaunchWindow {
 public:
  // Makes the graph and puts it on the stream's device, so that launching it finds its memory
  // there; nothing is launched. Throws kCuda.
  LaunchWindow(const Chain& chain, CUstream stream);
  ~LaunchWindow();
  LaunchWindow(const LaunchWindow&) = delete;
  LaunchWindow& operator=(const LaunchWindow&) = delete;

  // Whether the chain consists of kernels alone and is long enough for what a window costs.
  static bool suits(const Chain& chain);

  // How many steps launch() launches: so many for this chain, of which a long chain of the same
  // plans has no more, however long.
  int64_t steps() const { return steps_; }
  static int64_t steps_for(const Chain& chain);

  // Launches the steps() steps from the one that runs as number `first`. The chain is the
  // constructor's or a rebind() of it, of the same length or another. Throws kCuda naming the step,
  // plan and kernel of a node that the driver refuses, or the steps that it does not launch.
  void launch(LaunchWalk& walk, const Chain& chain, int64_t first, CUstream stream);

  // Leaves a mark behind all that was issued to the stream so far.
  void mark(CUstream stream);

  // Whether the device has come past the last mark.
  bool passed_mark() const;

 private:
  void build(const Chain& chain, CUstream stream);
  void destroy();

  const int64_t steps_;
  std::vector<std::shared_ptr<const BackendLaunch>> kernels_;  // of the nodes
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUevent mark_ = nullptr;
  std::vector<CUgraphNode> nodes_;
};

// The window of all chains that one recording has been bound to. Made when the second of them runs:
// then there will be more.
class SharedWindow : public BackendWindow {
 public:
  // The window, for as long as the holder lives; nobody else uses it meanwhile.
  class Holder {
   public:
    LaunchWindow* get() const { return window_; }

   private:
    friend class SharedWindow;
    std::unique_lock<std::mutex> lock_;
    LaunchWindow* window_ = nullptr;
  };

  // Without a window when another run holds it, none is worth making yet, or one failed: an attempt
  // to make it or what give_up() was told of. Does not throw for the driver's failures.
  Holder try_hold(const Chain& chain, CUstream stream);

  // Waits for another run; makes the window if there is none. Throws kCuda.
  Holder hold(const Chain& chain, CUstream stream);

  // The window that is held has failed: it is destroyed, and try_hold gives no other.
  void give_up(Holder& holder);

 private:
  // Makes a window if there is none, or one for shorter chains or longer ones.
  void fill(Holder& holder, const Chain& chain, CUstream stream);

  std::mutex mutex_;
  std::unique_ptr<LaunchWindow> window_;
  bool ran_ = false;
  bool failed_ = false;
};

// That of a chain on a CUDA device.
inline SharedWindow& shared_window(const Chain& chain) {
  return static_cast<SharedWindow&>(*chain.shared_window());
}

}  // namespace sdm::plancap::cuda
