#include "fake_state.h"

namespace fake {

State::State() {
  for (int i = 0; i < kNumDevices; ++i) {
    contexts[i].device = i;
    streams[i].context = &contexts[i];
  }
}

State& state() {
  static State instance;
  return instance;
}

std::vector<Context*>& context_stack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

int injected(const char* function) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto found = all.failures.find(function);
  if (found == all.failures.end() || found->second.first-- > 0) return 0;
  const int result = found->second.second;
  all.failures.erase(found);
  return result;
}

void log(std::string json) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.log.push_back(std::move(json));
}

std::string quote(const std::string& text) { return "\"" + text + "\""; }

namespace {

std::string triple(const unsigned (&of)[3]) {
  return "[" + std::to_string(of[0]) + "," + std::to_string(of[1]) + "," + std::to_string(of[2]) +
         "]";
}

std::string hex(const void* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<const unsigned char*>(bytes)[i];
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

std::string json_of(const Launch& launch) {
  std::string attributes;
  for (const auto& [id, value] : launch.attributes) {
    if (!attributes.empty()) attributes += ",";
    attributes += quote(std::to_string(id)) + ":" + value;
  }
  return "\"entry\":" + quote(launch.entry) + ",\"grid\":" + triple(launch.grid) +
         ",\"block\":" + triple(launch.block) + ",\"shared\":" + std::to_string(launch.shared) +
         ",\"params\":" + quote(launch.params) + ",\"attributes\":{" + attributes + "}";
}

Launch make_launch(CUfunction function, const unsigned (&grid)[3], const unsigned (&block)[3],
                   unsigned shared, void** params) {
  const auto& kernel = *reinterpret_cast<const Kernel*>(function);
  Launch launch{};
  launch.entry = kernel.name;
  for (int i = 0; i < 3; ++i) launch.grid[i] = grid[i], launch.block[i] = block[i];
  launch.shared = shared;
  launch.params = hex(params[0], static_cast<size_t>(kernel.param_bytes));
  return launch;
}

}  // namespace fake

// What the tests call, through ctypes.
extern "C" {

// The calls since the last time, as a JSON list.
const char* fake_take_log() {
  static std::string text;
  fake::State& all = fake::state();
  const std::lock_guard lock(all.mutex);
  text = "[";
  for (const std::string& entry : all.log) text += (text.size() > 1 ? "," : "") + entry;
  text += "]";
  all.log.clear();
  return text.c_str();
}

// The kernels that every library loaded from now on holds.
void fake_declare(const char* name, int param_bytes, int static_shared, int max_threads) {
  fake::state().declared[name] = {name, param_bytes, static_shared, max_threads, {}};
}

// The function's call after the next `working` ones fails with `result`.
void fake_fail(const char* function, int working, int result) {
  fake::State& all = fake::state();
  const std::lock_guard lock(all.mutex);
  all.failures[function] = {working, result};
}

// Whether the device is to have more to do than it has done.
void fake_keep_busy(int busy) { fake::state().busy = busy != 0; }

// How long calls on an instantiated graph take from now on, in microseconds.
void fake_delay(int exec_call_us) { fake::state().exec_call_us = exec_call_us; }

// Calls since the last time that met another one on the same instantiated graph.
int fake_take_overlapping() { return fake::state().overlapping.exchange(0); }

// Such calls since the last time by threads whose mode lets captures elsewhere forbid them.
int fake_take_unrelaxed() { return fake::state().unrelaxed.exchange(0); }

// Whether the device's stream is being captured.
void fake_capture(int device, int on) {
  static fake::Graph graph;
  fake::state().streams[device].capture = on ? &graph : nullptr;
}

void* fake_stream(int device) { return &fake::state().streams[device]; }

int fake_context_depth() { return static_cast<int>(fake::context_stack().size()); }
}
