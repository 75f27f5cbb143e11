// Functions of a library that this process has loaded already, whoever loaded it.
#pragma once
#include <cstdint>
#include <string>

namespace sdm::plancap {

struct LoadedSymbol {
  void* address = nullptr;
  const char* failure = nullptr;  // why there is no address; lives as long as the process
};

// `symbol` of the loaded library whose file name starts with `name`, such as "libcublas.so". Loads
// nothing. Two loaded libraries of that name are a failure: nothing says which one torch calls.
LoadedSymbol find_loaded(const char* name, const char* symbol);

// Grows with every library that this process loads or unloads: equal numbers, the same libraries.
uint64_t library_changes();

}  // namespace sdm::plancap
