// Sinks: where a launcher's one launch goes. A launcher gets a sink and nothing else - no stream,
// no context - so the launch it hands over is all that it can do.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "plancap/capture/tensor_ref.h"
#include "plancap/format/kernel_info.h"

namespace sdm::plancap {

// The device a launch is for, as far as geometry and identity need it.
struct Target {
  Backend backend = Backend::kHost;
  Device device;
  int sm_count = 0;  // 0 on the host
  int capability_major = 0;
  int capability_minor = 0;
  uint32_t shared_bytes_optin = 0;  // the most dynamic shared memory a block may ask for
  bool supports_pdl = false;
  std::array<uint8_t, 16> uuid{};
};

// A pointer field and the tensor it points into.
struct Operand {
  const char* field;
  const char* name;  // what plan.bind(name=...) calls it
  TensorRef tensor;
  Access access;
  uint32_t align = 1;        // the address must be a multiple of this (a power of two)
  uint64_t step_stride = 0;  // bytes; with step_bytes: the part that step ti touches
  uint64_t step_bytes = 0;   // 0: any part of the operand, in every step
  uint64_t offset = 0;       // bytes from the operand's start to the address in the field
};

using NamedTensor = std::pair<std::string, TensorRef>;

struct Patch {
  const char* field;
  PatchKind kind;
  int64_t base;
  int64_t stride;
  int64_t lowest;
  int64_t highest;
};

// One launch, complete. `params` is the kernel's parameter block with real addresses in it.
struct Launch {
  const KernelInfo* kernel = nullptr;
  std::string entry;     // the device function; empty on the host backend
  bool library = false;  // a library call that the executor makes, not a kernel of ours
  LaunchConfig config;
  const void* params = nullptr;
  uint32_t steps = 1;
  std::vector<Operand> operands;
  std::vector<Patch> patches;
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual const Target& target() const = 0;
  virtual void launch(const Launch& launch) = 0;
};

// Runs the launch now, on the host.
class HostSink : public Sink {
 public:
  const Target& target() const override { return target_; }
  void launch(const Launch& launch) override;

 private:
  Target target_;
};

// The hash of the image that holds a launch's device function; zero for a launch that has none.
using FindImage = ImageHash (*)(const Launch& launch, const Target& target);

// Records the one launch of a launcher and issues nothing.
class PlanSink : public Sink {
 public:
  // `launcher` names the launcher in errors. What find_image throws for the launch, launch()
  // throws.
  PlanSink(std::string launcher, Target target, FindImage find_image);
  const Target& target() const override { return target_; }
  void launch(const Launch& launch) override;

  // The recorded plan's bytes. Throws kPlan when the launcher launched nothing.
  std::vector<std::byte> finish();

  // The operands of the recorded launch, each name once.
  const std::vector<NamedTensor>& operands() const { return operands_; }

 private:
  std::string launcher_;
  Target target_;
  FindImage find_image_;
  std::vector<std::byte> bytes_;
  std::vector<NamedTensor> operands_;
  bool launched_ = false;
};

}  // namespace sdm::plancap
