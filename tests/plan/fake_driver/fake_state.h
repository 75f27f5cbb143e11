// A stand-in for the CUDA driver. It executes nothing: it keeps track of contexts, libraries,
// launches and graphs, refuses what the driver would refuse, and logs what it was asked for as
// JSON.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fake {

struct Device {
  int major, minor, shared_optin;
};
inline constexpr Device kDevices[] = {
    {9, 0, 232448},                  // 0 and 1: the modern profile
    {9, 0, 232448}, {8, 0, 166912},  // 2: a100
    {8, 9, 101376},                  // 3: rtx
    {7, 5, 65536},                   // 4: unsupported
    {9, 0, 101376},                  // 5: unsupported, too little shared memory
    {9, 0, 232448},                  // 6: for a forced profile
    {8, 0, 166912},                  // 7: for profiles that cannot be forced
};
inline constexpr int kNumDevices = sizeof(kDevices) / sizeof(kDevices[0]);

struct Context {
  int device;
};

struct Kernel {
  std::string name;
  int param_bytes = 0, static_shared = 0, max_threads = 1024;
  std::map<int, int> attributes;
};

struct Library {
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

// What a kernel launch or node holds, however it came about.
struct Launch {
  std::string entry;
  unsigned grid[3], block[3], shared;
  std::string params;  // hex
  std::map<int, std::string> attributes;
};

struct Node {
  Launch launch;
};

struct Edge {
  Node *from, *to;
  int type, port;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Edge> edges;
};

struct Stream {
  Context* context;
  Graph* capture = nullptr;
  std::vector<Node*> last;  // of the capture
};

// The handles that are no stream objects: null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
inline bool is_special(CUstream stream) { return reinterpret_cast<uintptr_t>(stream) < 3; }

// Whether this thread may do what would break others' captures.
bool relaxed();

struct State {
  std::mutex mutex;
  Context contexts[kNumDevices];
  Stream streams[kNumDevices];
  std::map<std::string, Kernel> declared;
  std::map<std::string, std::pair<int, int>> failures;  // function: calls that still work, result
  std::vector<std::string> log;
  std::atomic<bool> busy{false};     // no mark is ever passed
  std::atomic<int> exec_call_us{0};  // how long a call on an instantiated graph takes
  std::atomic<int> overlapping{0};   // such calls that met another on the same graph
  std::atomic<int> unrelaxed{0};     // such calls in a mode that other threads' captures forbid
  State();
};

State& state();
std::vector<Context*>& context_stack();  // of this thread

// The result an injected failure asks for; 0 otherwise.
int injected(const char* function);

void log(std::string json);
std::string quote(const std::string& text);
std::string json_of(const Launch& launch);
Launch make_launch(CUfunction function, const unsigned (&grid)[3], const unsigned (&block)[3],
                   unsigned shared, void** params);

// Every fake function starts so: an injected failure is returned instead of doing anything.
#define FAKE_CALL(function) \
  if (const int code = ::fake::injected(#function)) return static_cast<CUresult>(code)

}  // namespace fake
