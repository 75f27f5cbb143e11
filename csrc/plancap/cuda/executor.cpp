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

// Calls what uses a window, and returns whether it worked; where it did not, a run does without
// windows.
template <typename Use>
bool worked(const Use& use) {
  try {
    use();
    return true;
  } catch (const Error& error) {
    if (!is_driver_failure(error)) throw;
    return false;
  }
}

// Issues launches one by one. Nothing in the loop allocates, locks or asks.
class Issuer {
 public:
  Issuer(const Chain& chain, CUstream stream, void* blas_handle)
      : chain_(chain), stream_(stream), blas_handle_(blas_handle), walk_(chain) {
    for (const auto& bound : chain.plans()) configs_.push_back(prepared(*bound).config_on(stream));
  }

  LaunchWalk& walk() { return walk_; }

  // The steps that run as numbers first .. end - 1.
  void issue(int64_t first, int64_t end) {
    walk_.visit(first, end, [this](const WalkedLaunch& launch) { issue(launch); });
  }

  // The same, with a mark of the window before the last `behind` launches. Whether it could be
  // left.
  bool issue_marked(int64_t first, int64_t end, LaunchWindow& window, int64_t behind) {
    int64_t left = static_cast<int64_t>(chain_.launches_per_step()) * (end - first);
    SDM_INTERNAL_CHECK(left > behind, "a mark ", behind, " before the end of ", left, " launches");
    bool marked = false;
    walk_.visit(first, end, [&](const WalkedLaunch& launch) {
      issue(launch);
      if (--left != behind) [[likely]]
        return;
      marked = worked([&] { window.mark(stream_); });
      walk_.begin_anew();
    });
    return marked;
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
    fail(launch, kind_of_failure(result), describe_failure("cuLaunchKernelEx", result), 0);
  }

  void call_library(const WalkedLaunch& launch) {
    const LibraryFailure failure =
        launch.bound->plan().kernel().library(launch.params, blas_handle_);
    if (!failure) [[likely]]
      return;
    fail(launch, failure.kind(), failure.text, 1);  // it may have launched something
  }

  [[noreturn]] void fail(const WalkedLaunch& launch, ErrorKind kind, const std::string& what,
                         uint64_t more_issued) {
    Error error(kind, launch_place(chain_, launch.step, launch.plan) + what);
    error.note_issued(launches_before(chain_, launch.step, launch.plan) + more_issued);
    throw error;
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

// How far a run has come, and whether its window works.
struct Progress {
  int64_t done = 0;  // steps
  bool works = true;
};

// Issues single launches until the device is found waiting for them, the window fails, or all are
// out. Looks when half as many are out as a window has, and then at twice as many each time: a
// mark keeps the launch behind it from starting early.
Progress issue_until_starved(const Chain& chain, Issuer& issuer, LaunchWindow& window) {
  Progress at;
  for (int64_t next = std::max<int64_t>(window.steps() / 2, 1); next < chain.steps(); next *= 2) {
    at.works = issuer.issue_marked(at.done, next, window, kLeftWhenStarved);
    at.done = next;
    bool starved = false;
    at.works = at.works && worked([&] { starved = window.passed_mark(); });
    if (!at.works || starved) return at;
  }
  issuer.issue(at.done, chain.steps());
  at.done = chain.steps();
  return at;
}

// Short kernels run faster than single launches are issued, windows only where that is so: long
// kernels lose by them, as updated nodes take the device 0.1 to 0.2 us each. Returns whether the
// window worked; where it did not, single launches have taken the run to its end. They report what
// is wrong if more than the window is.
bool run_where_starved(const Chain& chain, CUstream stream, LaunchWindow& window) {
  Issuer issuer(chain, stream, nullptr);
  const int64_t width = window.steps();
  Progress at = issue_until_starved(chain, issuer, window);
  while (at.works && at.done + width <= chain.steps()) {
    at.works = worked([&] { window.launch(issuer.walk(), chain, at.done, stream); });
    if (at.works) at.done += width;
  }
  issuer.walk().begin_anew();
  issuer.issue(at.done, chain.steps());
  return at.works;
}

// The caller asked for windows: their failure is the run's.
void run_in_windows(const Chain& chain, CUstream stream, LaunchWindow& window) {
  Issuer issuer(chain, stream, nullptr);
  const int64_t width = window.steps();
  int64_t done = 0;
  try {
    for (; done + width <= chain.steps(); done += width) {
      window.launch(issuer.walk(), chain, done, stream);
    }
  } catch (Error& error) {
    error.note_issued(static_cast<uint64_t>(done) * chain.launches_per_step());
    throw;
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

void run_in_asked_windows(const Chain& chain, CUstream stream) {
  expect_windows(chain, stream);
  const RelaxedCapture relaxed;  // other streams' captures are not touched
  const SharedWindow::Holder held = shared_window(chain).hold(chain, stream);
  run_in_windows(chain, stream, *held.get());
}

// Whether the chain ran here: windows suit it, were free and could be made. Otherwise nothing was
// issued. Nobody asked for them, so they must not fail a run that single launches can make.
bool run_in_offered_windows(const Chain& chain, CUstream stream) {
  if (!LaunchWindow::suits(chain)) return false;
  bool captured = true;
  if (!worked([&] { captured = capturing(stream); }) || captured) return false;
  const RelaxedCapture relaxed;
  SharedWindow& shared = shared_window(chain);
  SharedWindow::Holder held = shared.try_hold(chain, stream);
  if (!held.get()) return false;
  if (!run_where_starved(chain, stream, *held.get())) shared.give_up(held);
  return true;
}

void issue(const Chain& chain, CUstream stream, void* blas_handle, Windows windows) {
  if (windows == Windows::kAlways) return run_in_asked_windows(chain, stream);
  if (windows == Windows::kAuto && run_in_offered_windows(chain, stream)) return;
  Issuer(chain, stream, blas_handle).issue(0, chain.steps());
}

}  // namespace

void expect_stream(const Chain& chain, CUstream stream) {
  if (is_special(stream)) return;  // it is whatever device is current, and that is the chain's
  CUcontext context = nullptr;
  check(driver().stream_context(stream, &context), "cuStreamGetCtx", "chain: stream: ");
  const DeviceInfo& device = *prepared(*chain.plans().front()).device;
  if (context == device.context) return;
  CUdevice given = -1;
  check(driver().context_push(context), "cuCtxPushCurrent", "chain: stream: ");
  const CUresult result = driver().context_device(&given);
  driver().context_pop(&context);
  check(result, "cuCtxGetDevice", "chain: stream: ");
  SDM_EXPECT(given == device.device, kValue, "chain", "stream", cat("a stream of ", device.name),
             cat("one of device ", given));
}

void run_chain(const Chain& chain, CUstream stream, void* blas_handle, Windows windows) try {
  const ContextGuard context(*prepared(*chain.plans().front()).device);
  expect_stream(chain, stream);
  SDM_EXPECT(blas_handle || !chain.has_library_step(), kValue, "chain", "blas_handle",
             "a cuBLAS handle, for its library step", "none");
  const Range range(chain);
  issue(chain, stream, blas_handle, windows);
  count_launches(chain.launches());
} catch (Error& error) {
  if (error.kind() != ErrorKind::kInternal) error.note_issued(0);
  throw;
}

}  // namespace sdm::plancap::cuda
