#include "plancap/cuda/executor.h"

#include "plancap/cuda/check.h"
#include "plancap/cuda/instruments.h"
#include "plancap/cuda/prepared_launch.h"

namespace sdm::plancap::cuda {
namespace {

// One plan's launch in this run: its own parameters, so that runs of one chain do not mix patches.
struct Slot {
  const BoundPlan* bound = nullptr;
  CUfunction function = nullptr;  // null for a library call
  CUlaunchConfig config{};
  std::byte* params = nullptr;
  uint32_t plain_attributes = 0;  // without the programmatic one
  uint32_t all_attributes = 0;
};

// The driver's handles that are no stream objects: null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
bool is_special(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

class Run {
 public:
  Run(const Chain& chain, CUstream stream, void* blas_handle)
      : chain_(chain), stream_(stream), blas_handle_(blas_handle) {
    size_t bytes = 0;
    for (const auto& bound : chain.plans()) bytes += padded(bound->params().size());
    params_.resize(bytes);
    slots_.reserve(chain.plans().size());
    std::byte* next = params_.data();
    for (const auto& bound : chain.plans()) {
      const auto params = bound->params();
      std::copy(params.begin(), params.end(), next);
      if (!bound->plan().empty()) slots_.push_back(make_slot(*bound, next));
      next += padded(params.size());
    }
  }

  void all_steps() {
    for (int64_t ti = int64_t{chain_.steps()} - 1; ti >= 0; --ti) {
      for (Slot& slot : slots_) launch(slot, ti);
    }
  }

  uint64_t launches() const { return uint64_t{chain_.steps()} * slots_.size(); }

 private:
  static size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

  Slot make_slot(const BoundPlan& bound, std::byte* params) const {
    const PreparedLaunch& prepared = *bound.prepared();
    Slot slot;
    slot.bound = &bound;
    slot.params = params;
    slot.all_attributes = prepared.num_attributes;
    slot.plain_attributes = prepared.num_attributes - (prepared.config.programmatic ? 1 : 0);
    slot.config = prepared.launch_config(stream_);
    if (prepared.kernel) slot.function = prepared.kernel->function;
    return slot;
  }

  void launch(Slot& slot, int64_t ti) {
    for (const ResolvedPatch& patch : slot.bound->patches()) patch.apply(slot.params, ti);
    if (!slot.function) return call_library(slot, ti);
    // An early launch reads data that the kernel before it leaves alone; only for a kernel of this
    // chain is it known what that is and that it waited for everything before itself.
    slot.config.numAttrs = after_kernel_ ? slot.all_attributes : slot.plain_attributes;
    after_kernel_ = true;
    void* arguments[] = {slot.params};
    const CUresult result = cuda_.launch(&slot.config, slot.function, arguments, nullptr);
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail(slot, ti, describe_failure("cuLaunchKernelEx", result));
  }

  void call_library(const Slot& slot, int64_t ti) {
    after_kernel_ = false;
    const char* failure = slot.bound->plan().kernel().library(slot.params, blas_handle_);
    if (failure) [[unlikely]]
      fail(slot, ti, failure);
  }

  [[noreturn]] void fail(const Slot& slot, int64_t ti, const std::string& reason) const {
    const Plan& plan = slot.bound->plan();
    size_t index = 0;
    while (chain_.plans()[index].get() != slot.bound) ++index;
    const std::string entry = plan.entry();
    throw Error(ErrorKind::kCuda,
                cat("chain: step ", ti, ", plan ", index, " (", plan.kernel_name(),
                    entry.empty() ? "" : ", ", entry, "): ", reason));
  }

  const Driver& cuda_ = driver();
  const Chain& chain_;
  CUstream stream_;
  void* blas_handle_;
  bool after_kernel_ = false;
  std::vector<std::byte> params_;
  std::vector<Slot> slots_;
};

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

void run_chain(const Chain& chain, CUstream stream, void* blas_handle) {
  const ContextGuard context(*chain.plans().front()->prepared()->device);
  expect_stream(chain, stream);
  SDM_EXPECT(blas_handle || !chain.has_library_step(), kValue, "chain", "blas_handle",
             "a cuBLAS handle, for its library step", "none");
  Run run(chain, stream, blas_handle);
  const Range range(chain);
  run.all_steps();
  count_launches(run.launches());
}

}  // namespace sdm::plancap::cuda
