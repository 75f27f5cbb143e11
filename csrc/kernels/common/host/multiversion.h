// One function compiled for several instruction sets, the best chosen when the extension loads.
// Helpers that it calls must be always_inline, so that they are compiled for the same set.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(SDM_NO_MULTIVERSION)
#define SDM_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), noinline))
#else
#define SDM_MULTIVERSION
#endif
