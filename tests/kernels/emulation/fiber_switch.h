// Switching between stacks without a system call, which ucontext's swapcontext would make each
// time.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulation {

// A suspended stack: its pointer, with the callee-saved registers on top.
using StackPointer = void*;

// Saves this stack's state into `from` and goes on where `to` was saved.
extern "C" void emulation_switch(StackPointer* from, StackPointer to);

#if defined(__x86_64__)
asm(R"(
.text
.globl emulation_switch
.type emulation_switch, @function
emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
inline constexpr int kSavedWords = 6;
#else
#error "emulation: say how this processor switches stacks"
#endif

// A stack that starts in `start`, which must never return.
inline StackPointer new_stack(char* memory, size_t bytes, void (*start)()) {
  auto top = reinterpret_cast<uintptr_t>(memory + bytes) & ~uintptr_t{15};
  auto* word = reinterpret_cast<void**>(top) - 2;  // so that the stack is aligned as after a call
  *word = reinterpret_cast<void*>(start);
  word -= kSavedWords;
  for (int i = 0; i < kSavedWords; ++i) word[i] = nullptr;
  return word;
}

}  // namespace emulation
