// Runs a device function block by block, its threads as fibers in round-robin order.
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fiber_switch.h"
#include "run_grid.h"

namespace emulation {
namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kGuardBytes = 64 * 1024;  // behind a block's shared memory: nothing writes here

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("emulation: " + what); }

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Fiber {
  StackPointer state = nullptr;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  Position position;
  bool done = false;
  std::vector<Copy> uncommitted;
  std::deque<std::vector<Copy>> groups;
};

// Where a warp or a block meets. Words of one meeting are kept while the next one gathers.
struct Meeting {
  uint32_t expected = 0, arrived = 0, number = 0;
  const char* what = nullptr;
  uint32_t words[2][32] = {};
  uint32_t any[2] = {};  // the words' bits together
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Meeting> warps;
  Meeting all;
  std::vector<char> shared;
  std::function<void()> body;
  StackPointer scheduler = nullptr;
  size_t running = 0;
  uint64_t meetings = 0;  // to notice a block in which nobody can go on
  std::exception_ptr error;
};
Block* block;

Fiber& fiber() { return block->fibers[block->running]; }

void yield() { emulation_switch(&fiber().state, block->scheduler); }

uint32_t meet(Meeting& meeting, uint32_t word, const char* what, uint32_t lane) {
  if (meeting.arrived > 0 && std::strcmp(meeting.what, what) != 0)
    fail(std::string("threads of one warp meet in ") + meeting.what + " and in " + what);
  meeting.what = what;
  const uint32_t number = meeting.number;
  if (meeting.arrived == 0) meeting.any[number % 2] = 0;
  meeting.any[number % 2] |= word;
  meeting.words[number % 2][lane] = word;
  if (++meeting.arrived == meeting.expected) {
    meeting.arrived = 0;
    ++meeting.number;
    ++block->meetings;
  }
  while (meeting.number == number) yield();
  return number;
}

void fiber_main() {
  try {
    block->body();
  } catch (...) {
    block->error = std::current_exception();
  }
  fiber().done = true;
  yield();
}

void run_block(Block& one) {
  for (Fiber& f : one.fibers) f.state = new_stack(f.stack.get(), kStackBytes, fiber_main);
  for (size_t left = one.fibers.size(); left > 0;) {
    const uint64_t meetings = one.meetings;
    const size_t before = left;
    for (one.running = 0; one.running < one.fibers.size(); ++one.running) {
      Fiber& f = fiber();
      if (f.done) continue;
      emulation_switch(&one.scheduler, f.state);
      if (one.error) std::rethrow_exception(one.error);
      left -= f.done;
    }
    if (left == before && one.meetings == meetings) fail("some threads wait for others for ever");
  }
}

}  // namespace

const Position& position() { return fiber().position; }

const uint32_t* exchange(uint32_t word, const char* what) {
  const auto thread = static_cast<uint32_t>(block->running);
  Meeting& warp = block->warps[thread / 32];
  return warp.words[meet(warp, word, what, thread % 32) % 2];
}

void block_barrier() { meet(block->all, 0, "__syncthreads", 0); }

bool block_any(bool vote) {
  return block->all.any[meet(block->all, vote, "__syncthreads_or", 0) % 2] != 0;
}

char* dynamic_shared() {
  char* start = block->shared.data();
  return start + (16 - reinterpret_cast<uintptr_t>(start) % 16) % 16;
}

void copy_later(void* to, const void* from, size_t bytes) {
  const char* start = dynamic_shared();
  const char* end = start + block->shared.size() - kGuardBytes;
  if (static_cast<char*>(to) < start || static_cast<char*>(to) + bytes > end)
    fail("a copy past the block's shared memory");
  fiber().uncommitted.push_back({to, from, bytes});
}

void commit_copies() {
  fiber().groups.push_back(std::move(fiber().uncommitted));
  fiber().uncommitted.clear();
}

void finish_copies(size_t pending_groups) {
  auto& groups = fiber().groups;
  for (; groups.size() > pending_groups; groups.pop_front()) {
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

void check_alignment(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0)
    fail("an access of " + std::to_string(bytes) + " bytes is not aligned");
}

void run_grid(const Grid& grid, const std::function<void()>& body) {
  Block one;
  block = &one;
  const uint32_t threads = grid.block_x * grid.block_y * grid.block_z;
  one.fibers.resize(threads);
  one.body = body;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t b = grid.backwards ? blocks - 1 - i : i;
    const uint3 at{uint32_t(b % grid.x), uint32_t(b / grid.x % grid.y),
                   uint32_t(b / grid.x / grid.y)};
    one.shared.assign(grid.shared_bytes + kGuardBytes,
                      '\xff');  // NaNs until something is put there
    one.warps.assign(threads / 32, {});
    for (Meeting& warp : one.warps) warp.expected = 32;
    one.all = {.expected = threads};
    for (uint32_t t = 0; t < threads; ++t) {
      Fiber& f = one.fibers[t];
      const uint3 thread{t % grid.block_x, t / grid.block_x % grid.block_y,
                         t / grid.block_x / grid.block_y};
      f.position = {
          thread, at, {grid.block_x, grid.block_y, grid.block_z}, {grid.x, grid.y, grid.z}};
      f.done = false;
      f.uncommitted.clear();
      f.groups.clear();
    }
    run_block(one);
    const char* guard = dynamic_shared() + grid.shared_bytes;
    if (std::count(guard, guard + kGuardBytes - 16, '\xff') != kGuardBytes - 16)
      fail("a store past the block's shared memory");
  }
}

}  // namespace emulation
