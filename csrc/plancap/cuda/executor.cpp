#include "plancap/cuda/executor.h"

#include <algorithm>

#include "plancap/cuda/check.h"
#include "plancap/cuda/instruments.h"
#include "plancap/cuda/launch_window.h"

namespace sdm::plancap::cuda {
namespace {

// The driver's handles that are no stream objects: null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
bool is_special(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// Issues launches one by one. Nothing in the loop allocates, locks or asks.
class Issuer {
 public:
  Issuer(const Chain& chain, CUstream stream, void* blas_handle)
      : chain_(chain), stream_(stream), blas_handle_(blas_handle), walk_(chain) {
    for (const auto& bound : chain.plans())
      configs_.push_back(bound->prepared()->config_on(stream));
  }

  LaunchWalk& walk() { return walk_; }

  // The steps that run as numbers first .. end - 1.
  void issue(int64_t first, int64_t end) {
    walk_.visit(first, end, [this](const WalkedLaunch& launch) { issue(launch); });
  }

  // The same, with a mark of the window before the last `behind` launches.
  void issue_marked(int64_t first, int64_t end, LaunchWindow& window, int64_t behind) {
    int64_t left = static_cast<int64_t>(chain_.launches_per_step()) * (end - first);
    SDM_INTERNAL_CHECK(left > behind, "a mark ", behind, " before the end of ", left, " launches");
    walk_.visit(first, end, [&](const WalkedLaunch& launch) {
      issue(launch);
      if (--left != behind) [[likely]]
        return;
      window.mark(stream_);
      walk_.begin_anew();
    });
  }

 private:
  void issue(const WalkedLaunch& launch) {
    if (!launch.prepared->kernel) return call_library(launch);
    CUlaunchConfig& config = configs_[launch.plan];
    config.numAttrs = launch.prepared->attribute_count(launch.programmatic);
    void* arguments[] = {launch.params};
    const CUresult result =
        launch_kernel_(&config, launch.prepared->kernel->function, arguments, nullptr);
    if (result == CUDA_SUCCESS) [[likely]]
      return;
    check(result, "cuLaunchKernelEx", launch_place(chain_, launch.step, launch.plan));
  }

  void call_library(const WalkedLaunch& launch) {
    const char* failure = launch.bound->plan().kernel().library(launch.params, blas_handle_);
    if (!failure) [[likely]]
      return;
    throw Error(ErrorKind::kCuda, launch_place(chain_, launch.step, launch.plan) + failure);
  }

  const Chain& chain_;
  const CUstream stream_;
  void* const blas_handle_;
  const decltype(Driver::launch) launch_kernel_ = driver().launch;
  LaunchWalk walk_;
  std::vector<CUlaunchConfig> configs_;  // one per plan
};

// A device that has come past a mark this many launches back has next to nothing left to do.
constexpr int64_t kLeftWhenStarved = 8;

// Issues launches one by one until the device is found to wait for them, or all are out; how many
// steps that took. Looks when half as many are out as a window has, and then at twice as many each
// time: a mark keeps the launch behind it from starting early.
int64_t issue_until_starved(const Chain& chain, Issuer& issuer, LaunchWindow& window) {
  int64_t done = 0;
  for (int64_t next = std::max<int64_t>(window.steps() / 2, 1); next < chain.steps(); next *= 2) {
    issuer.issue_marked(done, next, window, kLeftWhenStarved);
    done = next;
    if (window.passed_mark()) return done;
  }
  issuer.issue(done, chain.steps());
  return chain.steps();
}

// Short kernels run faster than single launches are issued, windows only where that is so: long
// kernels lose by them, as updated nodes take the device 0.1 to 0.2 us each.
void run_in_windows(const Chain& chain, CUstream stream, LaunchWindow& window,
                    bool from_the_start) {
  Issuer issuer(chain, stream, nullptr);
  const int64_t width = window.steps();
  int64_t done = from_the_start ? 0 : issue_until_starved(chain, issuer, window);
  for (; done + width <= chain.steps(); done += width) {
    window.launch(issuer.walk(), chain, done, stream);
  }
  issuer.walk().begin_anew();
  issuer.issue(done, chain.steps());
}

bool capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver().stream_capturing(stream, &status), "cuStreamIsCapturing", "chain: stream: ");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void expect_windows(const Chain& chain, CUstream stream) {
  const char* given = chain.has_library_step() ? "a chain with a library step"
                      : chain.launches() == 0  ? "a chain that launches nothing"
                      : capturing(stream)      ? "a capture"
                                               : nullptr;
  SDM_EXPECT(!given, kValue, "chain", "windowed", "None or False for what a window cannot hold",
             given);
}

// Whether the chain ran here: windows were allowed, suit it, and were free. Otherwise nothing was
// issued.
bool run_in_shared_window(const Chain& chain, CUstream stream, Windows windows) {
  if (windows == Windows::kNever) return false;
  if (windows == Windows::kAlways)
    expect_windows(chain, stream);
  else if (!LaunchWindow::suits(chain) || capturing(stream))
    return false;
  const RelaxedCapture relaxed;  // other streams' captures are not touched
  SharedWindow& shared = *chain.shared_window();
  const bool always = windows == Windows::kAlways;
  const SharedWindow::Holder held = always ? shared.hold(chain) : shared.try_hold(chain);
  if (!held.get()) return false;
  run_in_windows(chain, stream, *held.get(), always);
  return true;
}

}  // namespace

void expect_stream(const Chain& chain, CUstream stream) {
  if (is_special(stream)) return;  // it is whatever device is current, and that is the chain's
  CUcontext context = nullptr;
  check(driver().stream_context(stream, &context), "cuStreamGetCtx", "chain: stream: ");
  const DeviceInfo& device = *chain.plans().front()->prepared()->device;
  if (context == device.context) return;
  CUdevice given = -1;
  check(driver().context_push(context), "cuCtxPushCurrent", "chain: stream: ");
  const CUresult result = driver().context_device(&given);
  driver().context_pop(&context);
  check(result, "cuCtxGetDevice", "chain: stream: ");
  SDM_EXPECT(given == device.device, kValue, "chain", "stream", cat("a stream of ", device.name),
             cat("one of device ", given));
}

void run_chain(const Chain& chain, CUstream stream, void* blas_handle, Windows windows) {
  const ContextGuard context(*chain.plans().front()->prepared()->device);
  expect_stream(chain, stream);
  SDM_EXPECT(blas_handle || !chain.has_library_step(), kValue, "chain", "blas_handle",
             "a cuBLAS handle, for its library step", "none");
  const Range range(chain);
  if (!run_in_shared_window(chain, stream, windows)) {
    Issuer(chain, stream, blas_handle).issue(0, chain.steps());
  }
  count_launches(chain.launches());
}

}  // namespace sdm::plancap::cuda
